"""`kproxy explore`: a cluster as a page, and the local server behind it (docs/explore.md).

sources     what is explored: snapshots, manifests, rules; live clusters and labs; rules made from objects
model       one state of a source, or a copy with edits
answers     what is answered, each from a model
compare     two states compared for every packet
state       the present state, its copies, and who listens (`worker`: long answers, and what is made ready ahead)
server      the API over HTTP; who may ask; listening
export      the page as one file, which `page` makes
static/     the built page; its sources are in `web/`
"""
