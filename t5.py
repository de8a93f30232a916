import sys
from tests.support.dataplane import agreement as a
from tests.support.dataplane.agreement import check_ipvs
try: check_ipvs(int(sys.argv[1]),4)
except AssertionError as e:
    s=str(e); i=s.find(' against '); print(s[:300]); print(); print(s[i-200:i+1600])
