import sys,time
from pathlib import Path
from vagrant.checks.ipvs import loaded, _read
from vagrant.checks.scenario import read_scenario
from kproxy.cluster.rendered import rules_of
from kproxy.render import render_in_mode, Target
from kproxy.netfilter import Family
from kproxy.dataplane.compare.compare import compare
import msgspec
s=read_scenario(Path('rules_golden')/sys.argv[1]); f=Family.IPV4
cluster,config=_read(s)
t=Target(s.node_name,s.node)
def r(mode): return rules_of(render_in_mode(t,f,cluster.services,cluster.endpoint_slices,msgspec.structs.replace(config,mode=mode)))
for other in sys.argv[2:]:
    a=time.process_time(); c=compare(r("ipvs"),r(other),family=f); print(sys.argv[1],other,"alike",c.alike,len(c.differences),"unusual",c.unusual,"unexamined",c.unexamined,[str(u)[:150] for u in c.undecided[:5]],round(time.process_time()-a,1),"s")
    for d in c.differences:
        print("  ",d.family_of if 0 else "", "src",d.sources,"|",d.conditions,"|",d.one,"|",d.other,"|", d.situations[0].packet.destination, d.situations[0].packet.protocol, d.situations[0].connection.state, d.situations[0].packet.origin,"| cause",str(d.cause)[:120])
