"""The style sheet of a report, for light and dark pages and for wide and narrow screens.

Line colors are from the palette of Okabe and Ito, which color-blind people can distinguish. For contrast (3 to 1 for
lines, 4.5 to 1 for text), colors are darker on a light page and lighter on a dark page. Lines also differ in their
dashes.
"""

LIGHT = ("#0072b2", "#c05500", "#007a5a", "#a64d85", "#5b5b5b", "#8a6d00", "#1f78ad")
DARK = ("#56b4e9", "#f0914d", "#2bc79b", "#e199c3", "#b5b5b5", "#e3c53d", "#9fd0ef")
DASHES = ("none", "7 4", "2 3", "9 3 2 3")


def _css_color_variables(values: tuple[str, ...]) -> str:
    return "".join(f"--line{number}:{color};" for number, color in enumerate(values))


_PAGE = "--page:#fff;--text:#1b1f24;--soft:#59636e;--rule:#d0d7de;--panel:#f6f8fa;--band:#eaeef2;"
_DARK_PAGE = "--page:#14181d;--text:#e6e9ed;--soft:#a3adb8;--rule:#3a424b;--panel:#1d232a;--band:#262d35;"
_MARKS = "--good:#116329;--goodback:#dafbe1;--bad:#a40e26;--badback:#ffebe9;--changed:#fff3c4;--read:#6639ba;"
_DARK_MARKS = "--good:#7ee2a0;--goodback:#12351f;--bad:#ff9d97;--badback:#461a1d;--changed:#453a12;--read:#d2b3ff;"

STYLE = (
    f":root{{color-scheme:light dark;{_PAGE}{_MARKS}{_css_color_variables(LIGHT)}}}"
    f"@media (prefers-color-scheme:dark){{:root{{{_DARK_PAGE}{_DARK_MARKS}{_css_color_variables(DARK)}}}}}"
    + "".join(f".line{number}{{stroke:var(--line{number});}}" for number in range(len(LIGHT)))
    + "".join(f".fill{number}{{fill:var(--line{number});}}" for number in range(len(LIGHT)))
    + "".join(f".dash{number}{{stroke-dasharray:{dash};}}" for number, dash in enumerate(DASHES))
    + """
*{box-sizing:border-box}
body{margin:0;background:var(--page);color:var(--text);font:16px/1.5 system-ui,-apple-system,"Segoe UI",sans-serif}
main{max-width:72rem;margin:0 auto;padding:1rem}
h1{font-size:1.6rem;line-height:1.25;margin:.5rem 0;overflow-wrap:anywhere}
h2{font-size:1.2rem;margin:2rem 0 .5rem;padding-bottom:.25rem;border-bottom:1px solid var(--rule)}
h3{font-size:1rem;margin:1rem 0 .25rem;overflow-wrap:anywhere}
p{margin:.5rem 0;max-width:48rem;overflow-wrap:anywhere}
.lead{font-size:1.1rem}
.note,figcaption,.legend{color:var(--soft);font-size:.9rem}
.good,.bad{display:inline-block;padding:.1rem .6rem;border-radius:1rem;font-weight:600}
.good{color:var(--good);background:var(--goodback)}
.bad{color:var(--bad);background:var(--badback)}
.contents{position:sticky;top:0;z-index:2;display:flex;gap:.25rem 1.25rem;overflow-x:auto;padding:.5rem 1rem;
background:var(--page);border-bottom:1px solid var(--rule);white-space:nowrap;scrollbar-width:thin}
@media (min-width:73rem){.contents{padding-inline:calc(50% - 35rem)}}
section{scroll-margin-top:3rem}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,10rem),1fr));gap:.75rem;margin:1rem 0}
.tiles div{border:1px solid var(--rule);border-radius:6px;padding:.5rem .75rem;background:var(--panel)}
.tiles dt{color:var(--soft);font-size:.9rem}
.tiles dd{margin:0;font-size:clamp(1.2rem,1rem + 1.5vw,1.6rem);font-weight:600;line-height:1.3;overflow-wrap:anywhere}
.tiles .note{font-size:.9rem;font-weight:400}
.health{display:flex;flex-wrap:wrap;gap:.25rem .75rem;align-items:baseline;margin:1rem 0}
.health ul{flex:1 1 20rem;margin:0;padding-left:1.2rem;overflow-wrap:anywhere}
.health .good+ul{list-style:none;padding:0}
a{color:var(--line0)}
:focus-visible{outline:3px solid var(--line0);outline-offset:2px}
details{margin:.5rem 0;border:1px solid var(--rule);border-radius:6px;padding:0 .75rem}
details[open]{padding-bottom:.75rem}
summary{cursor:pointer;padding:.5rem 0;overflow-wrap:anywhere}
.scroll{overflow-x:auto;max-width:100%}
table{border-collapse:collapse;font-size:.9rem;margin:.5rem 0;font-variant-numeric:tabular-nums}
th,td{border:1px solid var(--rule);padding:.25rem .6rem;text-align:left;vertical-align:top;overflow-wrap:break-word;
max-width:32rem}
thead th{background:var(--panel)}
tbody th{font-weight:500}
.right{background:var(--goodback);color:var(--good);font-weight:600}
.wrong{background:var(--badback);color:var(--bad);font-weight:600}
td .note{display:block}
.errors td:first-of-type{min-width:14rem}
.option{white-space:nowrap}
.changed tbody td:first-of-type{background:var(--changed);font-weight:600}
pre{background:var(--panel);border:1px solid var(--rule);border-radius:6px;padding:.75rem;overflow-x:auto;
font-size:.85rem}
.charts{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,26rem),1fr));gap:1rem}
figure{margin:0;padding:.5rem;border:1px solid var(--rule);border-radius:6px;min-width:0}
figure h3{margin:0 .25rem}
.plot{position:relative}
.values{position:absolute;inset:0}
.values label{position:absolute;top:0;bottom:0}
.values input{position:absolute;opacity:0;margin:0;top:50%}
.values label::before{content:"";position:absolute;top:7%;bottom:9%;left:var(--at);border-left:1px solid var(--text)}
.values span{position:absolute;z-index:1;top:7%;left:calc(var(--at) + .4rem);padding:.1rem .5rem;border-radius:4px;
background:var(--text);color:var(--page);font-size:.8rem;white-space:pre;pointer-events:none}
.values .left span{left:auto;right:calc(100% - var(--at) + .4rem)}
.values label::before,.values span{visibility:hidden}
.values label:hover::before,.values label:hover span{visibility:visible}
.values:not(:hover) :focus-visible+span,.values:not(:hover) label:has(:focus-visible)::before{visibility:visible}
.by-tokens,.by-time{display:none}
main:has(#by-tokens:checked) .by-tokens,main:has(#by-time:checked) .by-time{display:grid}
main:has(#by-tokens:checked) .by-steps,main:has(#by-time:checked) .by-steps{display:none}
svg{display:block}
svg:where(:not(.real)){width:100%;height:auto}
svg text{fill:var(--soft);font-size:13px}
svg .line{fill:none;stroke-width:1.8;stroke-linejoin:round}
svg .thin{stroke-width:1.1}
svg .grid{stroke:var(--rule);stroke-width:.6}
svg .axis{stroke:var(--soft);stroke-width:1}
svg .band{fill:var(--band)}
svg .restart{stroke:var(--text);stroke-width:1.2;stroke-dasharray:1 3}
svg .checkpoint{fill:var(--soft)}
svg .broken{stroke:var(--bad);stroke-width:1.5}
svg .mark{fill:none;stroke:var(--text);stroke-width:2}
svg .level{paint-order:stroke;stroke:var(--page);stroke-width:4px}
svg .inside{fill:var(--page);font-weight:600;dominant-baseline:central}
.wide{max-width:48rem}
.legend{display:flex;flex-wrap:wrap;gap:.1rem 1rem;margin:.25rem;padding:0;list-style:none}
.legend li{display:flex;align-items:center;gap:.4rem;overflow-wrap:anywhere}
.legend svg{width:34px;height:12px;flex:none}
.sequence{line-height:1.9;max-width:none;white-space:pre-wrap}
.special{color:var(--soft);font-size:.8em}
mark.answer{font-weight:600}
.pair{border-left:3px solid var(--line0);padding-left:.6rem}
mark{padding:.05rem .3rem;border-radius:4px;white-space:nowrap;color:inherit;background:var(--changed)}
mark.hit{color:var(--good);background:var(--goodback)}
mark.miss{color:var(--bad);background:var(--badback);border-bottom:2px dashed var(--bad)}
mark .read{color:var(--read);font-size:.8em}
@media (max-width:30rem){.plot text,.wide text{font-size:17px}}
.maps{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,20rem),1fr));gap:1rem}
.map{image-rendering:pixelated}
.card{border:1px solid var(--rule);border-radius:6px;padding:0 .75rem .5rem;margin:.75rem 0}
.card .bad{margin-right:.5rem}
.example{border-left:3px dotted var(--soft);padding-left:.6rem;margin:.5rem 0}
p.tokens{line-height:2;max-width:none}
.tokens i{font-style:normal;padding:0 1px;margin-right:1px;border-radius:3px;background:var(--panel)}
.tokens code{font-size:.75em;padding:0 2px;border:1px solid var(--bad);color:var(--bad)}
.tokens .unknown{color:var(--bad);background:var(--badback);text-decoration:underline wavy}
.tokens mark{padding:0 2px;margin-right:1px}
mark.hidden{color:inherit;background:var(--changed);border-bottom:2px solid}
mark.random{color:var(--bad);background:var(--badback);border-bottom:2px dashed}
mark.kept{color:var(--good);background:var(--goodback);border-bottom:2px dotted}
.unit{outline:1px solid var(--soft);border-radius:4px;padding:1px}
.filters{display:flex;flex-wrap:wrap;gap:.5rem 1rem;align-items:center;margin:1rem 0}
.filters label{white-space:nowrap}
select{font:inherit;max-width:100%;color:inherit;background:var(--panel)}
fieldset{border:1px solid var(--rule);border-radius:6px;display:flex;flex-wrap:wrap;gap:0 .75rem;padding:0 .5rem}
main{counter-reset:shown}
.card{counter-increment:shown}
.shown::before{content:counter(shown) " sequences shown"}
.tall{overflow:auto;max-height:90vh}
.frame{fill:none;stroke:var(--rule)}
.label{font-size:10px;fill:var(--text)}
.cells rect{fill:transparent}
.cells rect:hover{stroke:var(--line1);stroke-width:2}
.reads line{stroke:var(--line0);stroke-width:2}
.reads:hover line{stroke:var(--line1)}
.reads:hover text{font-weight:600}
.defined{position:absolute}
@media (prefers-color-scheme:dark){.map{filter:invert(1)}}
@media print{details{border:0}.scroll{overflow:visible}.contents,.values{display:none}}
"""
)
