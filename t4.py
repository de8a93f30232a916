import sys,traceback
from tests.support.dataplane.agreement import check_ipvs
n=0; bad=0
for seed in range(int(sys.argv[1]),int(sys.argv[2])):
    try: n+=check_ipvs(seed,4)
    except AssertionError as e:
        bad+=1; print("SEED",seed,str(e)[:700])
    except Exception as e:
        bad+=1; print("EXC",seed,repr(e)[:300]); traceback.print_exc(limit=-3)
print(n,bad)
