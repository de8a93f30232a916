"""Style and script of the page; see `page.report_page`."""

from __future__ import annotations

from typing import Final

from kproxy.cli.page import PALETTE

STYLE: Final = (
    PALETTE
    + """
header,main{max-width:1080px;margin:0 auto;padding:0 20px}
header{padding-top:28px}
h1{font-size:1.45rem;margin:0;overflow-wrap:anywhere;font-weight:650}
h2{font-size:1.05rem;margin:28px 0 10px;font-weight:650}
h3{font-size:.82rem;letter-spacing:.06em;margin:0 0 6px;color:var(--blue)}
.proto{text-transform:uppercase;font-size:.72em;letter-spacing:.08em;color:var(--card);background:var(--blue);
border-radius:5px;padding:3px 8px;vertical-align:middle;margin-right:4px}
.sub,.assumed{color:var(--soft);margin:6px 0 0;overflow-wrap:anywhere}
.assumed{color:var(--open)}
ol,ul{list-style:none;margin:0;padding:0}
.outcomes{display:grid;gap:6px;max-height:420px;overflow:auto}
.outcome{position:relative;display:grid;grid-template-columns:76px 132px 1fr;gap:10px;align-items:baseline;
padding:8px 14px;background:var(--card);border:1px solid var(--line);border-radius:8px;color:inherit;
text-decoration:none;overflow:hidden}
.outcome .bar{position:absolute;inset:0 auto 0 0;background:var(--okbg);z-index:0}
.outcome>*:not(.bar){position:relative;z-index:1}
.drop .bar,.reject .bar{background:var(--badbg)}.indeterminate .bar{background:var(--openbg)}
.chance{font-weight:650;text-align:right;font-variant-numeric:tabular-nums}
.verdict{font-weight:650;color:var(--ok);font-size:.86em;letter-spacing:.03em}
.drop .verdict,.reject .verdict{color:var(--bad)}.indeterminate .verdict{color:var(--open)}
.where{overflow-wrap:anywhere}
a.outcome[href]:hover{border-color:var(--blue)}
.outcome[aria-current=true]{border-color:var(--blue);box-shadow:inset 4px 0 0 var(--blue)}
a:focus-visible,button:focus-visible,summary:focus-visible{outline:3px solid var(--blue);outline-offset:2px}
.way:focus{outline:none}
.accept-text{color:var(--ok)}.drop-text,.reject-text{color:var(--bad)}.indeterminate-text{color:var(--open)}
.map{margin:0;background:var(--card);border:1px solid var(--line);border-radius:10px;padding:14px;overflow-x:auto}
.map svg{display:block;width:100%;min-width:680px;height:auto}
.map rect{fill:var(--bg);stroke:var(--idle);stroke-width:1.5}
.map text{fill:var(--soft);font-size:13px;text-anchor:middle;font-weight:550}
.map .small{font-size:11px;font-weight:400}
.map .decision rect,.map .edge rect{stroke-dasharray:4 3}
.map .passed rect{fill:var(--hook);stroke:var(--blue);stroke-width:2;stroke-dasharray:none}
.map .passed text{fill:var(--ink)}
.map .last.accept rect{stroke:var(--ok);fill:var(--okbg)}
.map .last.drop rect,.map .last.reject rect{stroke:var(--bad);fill:var(--badbg)}
.map .last.indeterminate rect{stroke:var(--open);fill:var(--openbg)}
.map .stop{fill:var(--bad)!important;font-weight:700}
.map a:hover rect{stroke-width:3}
.line{fill:none;stroke:var(--idle);stroke-width:1.5}
.line.taken{stroke:var(--blue);stroke-width:4}
.map marker path{fill:context-stroke}
.tools{display:flex;justify-content:flex-end;margin:10px 0;min-height:4px}
button{font:inherit;font-size:.88em;color:var(--blue);background:var(--card);border:1px solid var(--line);
border-radius:7px;padding:4px 12px;cursor:pointer}
button:hover{border-color:var(--blue)}
.stations{border-left:3px solid var(--blue);margin-left:8px}
.station{position:relative;padding:4px 0 16px 22px;scroll-margin-top:12px}
.station::before{content:"";position:absolute;left:-9.5px;top:7px;width:11px;height:11px;border-radius:50%;
background:var(--bg);border:3px solid var(--blue)}
.station:target{background:var(--hook);border-radius:0 8px 8px 0}
.station.end h3{color:var(--ok)}.station.end::before{border-color:var(--ok);background:var(--ok)}
.end.drop h3,.end.reject h3{color:var(--bad)}
.end.drop::before,.end.reject::before{border-color:var(--bad);background:var(--bad)}
.end.indeterminate h3{color:var(--open)}
.end.indeterminate::before{border-color:var(--open);background:var(--open)}
.station li{margin:2px 0}
.station p,summary{margin:0;padding:3px 8px;border-radius:6px;overflow-wrap:anywhere}
summary{cursor:pointer}
summary:hover{background:var(--hook)}
summary::marker{color:var(--blue)}
.station p{color:var(--soft);padding-left:24px}
.place{font-weight:600}
.rule .place{font-family:ui-monospace,"DejaVu Sans Mono",monospace;font-size:.84em;font-weight:600}
.did{color:var(--soft)}.note{color:var(--blue);font-size:.9em}
.note::before{content:"· "}
code{display:block;margin:4px 8px 8px 24px;padding:8px 12px;background:var(--hook);border-radius:6px;
font:13px/1.5 ui-monospace,"DejaVu Sans Mono",monospace;overflow-wrap:anywhere;white-space:pre-wrap}
.depth-1{padding-left:22px}.depth-2{padding-left:44px}.depth-3{padding-left:66px}.depth-4{padding-left:88px}
.depth-5{padding-left:110px}.depth-6{padding-left:132px}
dl{display:grid;grid-template-columns:max-content 1fr;gap:4px 18px;margin:0;padding:2px 8px}
dt{color:var(--soft)}dd{margin:0;overflow-wrap:anywhere}
main{padding-bottom:48px}
@media (max-width:640px){.outcome{grid-template-columns:60px 1fr}.where{grid-column:1/-1}
.depth-1,.depth-2,.depth-3,.depth-4,.depth-5,.depth-6{padding-left:14px}dl{grid-template-columns:1fr}}
@media print{.way{display:block!important}.tools{display:none}}
"""
)

SCRIPT: Final = """
(function(){
var links=[].slice.call(document.querySelectorAll('a.outcome[href]'));
var ways=[].slice.call(document.querySelectorAll('.way'));
function choose(number,focus){
  ways.forEach(function(way){way.hidden=way.id!=='way-'+number});
  links.forEach(function(link){
    if(link.dataset.way===String(number)){link.setAttribute('aria-current','true')}
    else{link.removeAttribute('aria-current')}});
  if(focus){document.getElementById('way-'+number).focus({preventScroll:true})}
}
links.forEach(function(link){link.addEventListener('click',function(event){
  event.preventDefault();choose(link.dataset.way,true)})});
ways.forEach(function(way){
  var button=way.querySelector('button.all');
  var rules=[].slice.call(way.querySelectorAll('details'));
  if(!rules.length){return}
  button.hidden=false;
  button.addEventListener('click',function(){
    var open=rules.some(function(rule){return !rule.open});
    rules.forEach(function(rule){rule.open=open});
    button.textContent=open?'Hide all rules':'Show all rules'});
});
if(ways.length){choose(0,false)}
})();
"""
