"""`kproxy explore`: a cluster as a page, and the local server behind it (docs/explore.md).

source      what is explored: snapshots, manifests, rules; live clusters and labs in `live`
rendering   nodes whose rules are made from objects
model       one state of a source, or a copy with `edits`; state: the present one, and who listens
maps, ask, hop_rules, services, ...   what is answered, each from a Model
app         the API over HTTP; security: who may ask; server: listening
export      the page as one file
static/     the built page; its sources are in `web/`
"""
