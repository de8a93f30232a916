import sys
from kproxy.dataplane.symbolic.host_rules import SideRules
from kproxy.dataplane.compare.compare import compare
from kproxy.dataplane.model.ipvs import Ipvs
from kproxy.dataplane.model.pipeline import IptablesRules
from kproxy.netfilter import Family, parse_save
from kproxy.netfilter.address import parse_address
from kproxy.netfilter.ipvs.read import read_servers
A="""*nat
:PREROUTING ACCEPT [0:0]
:INPUT ACCEPT [0:0]
:OUTPUT ACCEPT [0:0]
:POSTROUTING ACCEPT [0:0]
COMMIT
*filter
:INPUT ACCEPT [0:0]
:FORWARD ACCEPT [0:0]
:OUTPUT ACCEPT [0:0]
COMMIT
"""
S="""-A -t 10.96.0.10:80 -s rr
-a -t 10.96.0.10:80 -r 10.244.0.5:8080 -m -w 1
-a -t 10.96.0.10:80 -r 10.244.1.7:8080 -m -w 1
"""
N=A.replace("COMMIT\n*filter","""-A PREROUTING -d 10.96.0.10 -p tcp --dport 80 -m statistic --mode random --probability 0.5 -j DNAT --to-destination 10.244.0.5:8080
-A PREROUTING -d 10.96.0.10 -p tcp --dport 80 -j DNAT --to-destination 10.244.1.7:8080
-A OUTPUT -d 10.96.0.10 -p tcp --dport 80 -m statistic --mode random --probability 0.5 -j DNAT --to-destination 10.244.0.5:8080
-A OUTPUT -d 10.96.0.10 -p tcp --dport 80 -j DNAT --to-destination 10.244.1.7:8080
COMMIT
*filter""")
f=Family.IPV4
def side(rules,servers=None):
    ip=Ipvs(f,read_servers(servers,"x").servers) if servers else None
    own=frozenset(a for _,a,_ in ip.services) if ip else frozenset()
    return SideRules((IptablesRules.of(parse_save(rules,family=f),"nft"),),ipvs=ip,own=own)
def show(name,a,b):
    c=compare(a,b,family=f)
    print("==",name,"alike",c.alike,"diffs",len(c.differences),"undecided",c.undecided[:3], "unusual",c.unusual)
    for d in c.differences[:8]:
        print("   ",str(d)[:400])
        try: print("      ",[ (str(o.verdict),o.src,o.dst,str(o.probability)) for t in d.traces for o in t.outcomes][:6])
        except Exception as e: print(e)
show("nat",side(A,S),side(N))
