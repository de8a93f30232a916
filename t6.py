import sys
from tests.support.dataplane import agreement as a
op, oo = a.plain, a.plain_observation
last=[None]
def p(d,f): last[0]=op(d,f); return last[0]
def o(d,f):
    r=oo(d,f)
    if r!=last[0]: print("SYM",last[0]); print("CON",r)
    return r
a.plain=p; a.plain_observation=o
orig=a.index_rules
def ir(r,f): print("IPVS",r.ipvs and {k:[(x.address,x.port,x.weight) for x in v.real] for k,v in r.ipvs.services.items()}); return orig(r,f)
a.index_rules=ir
oa=a.observe
def ob(i,s,w):
    last.append(s); return oa(i,s,w)
a.observe=ob
try: a.check_ipvs(int(sys.argv[1]),4)
except AssertionError as e: print(last[-2:])
