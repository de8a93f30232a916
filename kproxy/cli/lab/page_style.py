"""Style and script of the page; see `lab_page`."""

from __future__ import annotations

from typing import Final

from kproxy.cli.page import PALETTE

STYLE: Final = (
    PALETTE
    + """
header,main{max-width:1100px;margin:0 auto;padding:0 20px}
header{padding-top:28px}main{padding-bottom:48px}
h1{font-size:1.45rem;margin:0}h2{font-size:1.05rem;margin:26px 0 10px;overflow-wrap:anywhere}
h3{font-size:.82rem;letter-spacing:.05em;margin:16px 0 6px;color:var(--blue)}
.sub{color:var(--soft);margin:6px 0 0}
ol,ul{list-style:none;margin:0;padding:0}
.chooser{display:grid;gap:6px}
.choice{display:flex;flex-wrap:wrap;gap:2px 14px;justify-content:space-between;padding:8px 14px;background:var(--card);
border:1px solid var(--line);border-left:5px solid var(--ok);border-radius:8px;color:inherit;text-decoration:none}
.choice.bad{border-left-color:var(--bad)}
.choice b{font-weight:600;overflow-wrap:anywhere}.choice span{color:var(--soft);overflow-wrap:anywhere}
.choice:hover,.choice[aria-current=true]{border-color:var(--blue)}
.choice[aria-current=true]{background:var(--hook)}
a:focus-visible,summary:focus-visible{outline:3px solid var(--blue);outline-offset:2px}
.flow:focus{outline:none}
.map{margin:22px 0 0;background:var(--card);border:1px solid
var(--line);border-radius:10px;padding:12px;overflow-x:auto} .map
svg{display:block;width:100%;min-width:720px;height:auto} .map rect{fill:var(--bg);stroke:var(--line);stroke-width:1.5}
.map text{fill:var(--ink);font-size:14px;font-weight:600;text-anchor:middle}
.map .small{font-size:11.5px;font-weight:400;fill:var(--soft)}
.map .left{text-anchor:start}.map .right{text-anchor:end}
.map .pod rect{fill:var(--pod);stroke:none}.map .pod text{font-size:12px;font-weight:500}
.map .fabric rect{fill:var(--hook)}
.map .bad rect{fill:var(--badbg);stroke:var(--bad)}
.map .on>rect{stroke:var(--blue);stroke-width:3}
.cable{fill:none;stroke:var(--line);stroke-width:3}.cable.down{stroke:var(--bad);stroke-dasharray:5 5}
.way{fill:none;stroke:var(--blue);stroke-width:3;opacity:.85}
.lost{fill:none;stroke:var(--bad);stroke-width:4}
.map marker path{fill:var(--blue)}
.path circle{fill:var(--blue)}
.map .number{fill:var(--card);font-size:11px;font-weight:700}
.ways{display:grid;gap:2px;color:var(--soft)}.ways
b{display:inline-block;min-width:64px;font-variant-numeric:tabular-nums} .ways
.taken{color:var(--ink);font-weight:600}.ways .taken::after{content:" · this time";color:var(--blue)}
.scroll{overflow-x:auto;border:1px solid var(--line);border-radius:8px;background:var(--card)}
table{border-collapse:collapse;width:100%;font-size:.9em} th,td{text-align:left;padding:5px 12px;border-top:1px solid
var(--line);vertical-align:top;font-weight:400} thead th{border-top:0;color:var(--soft);font-size:.85em}
tbody th{font-weight:600;white-space:nowrap}
.hops td{font-family:ui-monospace,"DejaVu Sans Mono",monospace;font-size:.86em}
.other{background:var(--badbg)}
details{margin:8px 0 0}summary{cursor:pointer;color:var(--blue);overflow-wrap:anywhere}
.rules{padding:4px 0 0 18px}.rules li{margin:3px 0;overflow-wrap:anywhere}
.rules span{color:var(--soft);font-size:.85em}
code{font:12.5px/1.5 ui-monospace,"DejaVu Sans Mono",monospace}
@media print{.flow,.path{display:block!important}}
"""
)

SCRIPT: Final = """
(function(){
var choices=[].slice.call(document.querySelectorAll('.choice'));
var flows=[].slice.call(document.querySelectorAll('.flow'));
var paths=[].slice.call(document.querySelectorAll('.path'));
var hosts=[].slice.call(document.querySelectorAll('.map .host'));
function choose(number,focus){
  flows.forEach(function(flow,index){flow.hidden=index!==number});
  paths.forEach(function(path,index){path.style.display=index===number?'':'none'});
  choices.forEach(function(choice,index){
    if(index===number){choice.setAttribute('aria-current','true')}else{choice.removeAttribute('aria-current')}});
  var on={};
  if(flows[number]){[].forEach.call(flows[number].querySelectorAll('tr[data-host]'),function(row){
    on[row.dataset.host]=true})}
  hosts.forEach(function(host){host.classList.toggle('on',on[host.dataset.host]===true)});
  if(focus&&flows[number]){flows[number].focus({preventScroll:true})}
}
choices.forEach(function(choice,index){choice.addEventListener('click',function(event){
  event.preventDefault();choose(index,true)})});
if(flows.length){choose(0,false)}
})();
"""
