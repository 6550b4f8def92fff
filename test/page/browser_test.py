#!/usr/bin/env python3
"""Opens pages in a headless Chromium and looks whether they show what the library knows.

    browser_test.py PAGES     PAGES: the program of pages.cpp
"""
import json
import subprocess
import sys
import tempfile

from browser import Browser, program

failed = 0


def expect(what, is_true, seen=None):
    global failed
    if not is_true:
        failed += 1
        print(f"FAILED: {what}" + ("" if seen is None else f": {ascii(seen)[:1500]}"))


def report(page):
    return json.loads(page.value("JSON.stringify(memoryReport())"))


def drawn(page, canvas):
    return page.value(f"document.getElementById('{canvas}').toDataURL()")


def text(page, element):
    return page.value(f"document.getElementById('{element}').innerText")


def shows_what_the_library_knows(page, known):
    name, at_first = known["page"], report(page)
    expect(f"{name}: it has all events", at_first["count"] == known["events"], at_first)
    expect(f"{name}: it opens at the peak", at_first["moment"] == at_first["peakMoment"] == known["peak_moment"], at_first)
    expect(f"{name}: the peak is the library's", at_first["peak"] == at_first["live"] == known["peak"] == known["pool_peak"], at_first)
    expect(f"{name}: tags add up", sum(at_first["byTag"].values()) == known["peak"], at_first)
    page.value("document.getElementById('timeline').focus()")
    page.key("End")
    end = report(page)
    expect(f"{name}: its end is what the pool has now",
           (end["live"], end["blocks"], end["reserved"]) == (known["live"], known["blocks"], known["reserved"]), (end, known))


def counts_free_memory(page, name):
    """At the moments of the curve, which the library counted."""
    wrong = page.value("""JSON.stringify(runs.flatMap(r => r.fragmentation.filter(([m, ...known]) => {
        const {reserved, free, largest} = r.freeAt(m);
        return known.join() !== [reserved, free, largest].join();
    })))""")
    expect(f"{name}: what is free is the library's", wrong == "[]", wrong)


def obeys(page):
    """Mouse and keyboard."""
    page.to_front()
    page.key("Home")
    expect("Home goes to the beginning", report(page)["moment"] == 0 and report(page)["live"] == 0, report(page))
    page.key("ArrowRight")
    expect("an arrow goes on by one", report(page)["moment"] == 1, report(page))
    page.key("ArrowRight", shift=True)
    expect("with Shift by a hundredth", report(page)["moment"] == 1 + -(-report(page)["count"] // 100), report(page))
    page.key("p")
    expect("P goes to the peak", report(page)["moment"] == report(page)["peakMoment"], report(page))
    spoken = page.value("document.getElementById('timeline').getAttribute('aria-valuetext')")
    expect("the moment is said in words", "the peak" in spoken and "in use" in spoken, spoken)
    expect("the focus can be seen", page.value("getComputedStyle(document.getElementById('timeline')).outlineStyle") == "solid")

    before = report(page), drawn(page, "map"), drawn(page, "timeline"), text(page, "map-summary")
    page.value("document.querySelector('#axis input[value=order]').click()")
    page.click("timeline", 0.35)
    after = report(page), drawn(page, "map"), drawn(page, "timeline"), text(page, "map-summary")
    expect("a click on the timeline goes elsewhere", before[0]["moment"] != after[0]["moment"], after[0])
    expect("and the map is drawn anew", all(a != b for a, b in zip(before, after)), (before[3], after[3]))
    expect("with the blocks of that moment", after[0]["drawn"] == after[0]["blocks"], after[0])
    said = []
    for across in range(1, 20):
        page.click("map", across / 20, 0.05)
        said.append(text(page, "pointed"))
    expect("blocks say what they are", any(" live at 0x" in each and "tag " in each for each in said), said)
    expect("and so does free memory", any("Free memory at 0x" in each for each in said), said)
    page.value("document.getElementById('to-peak').click()")
    for colouring in ("stream", "state"):
        was = drawn(page, "map")
        page.value(f"document.querySelector('#colour input[value={colouring}]').click()")
        expect(f"blocks are coloured by {colouring}", drawn(page, "map") != was)
    page.value("document.querySelector('#events button').click()")
    expect("an event goes to its moment", page.value("document.querySelectorAll('#events .here').length") > 0)
    was = drawn(page, "timeline")
    page.value("document.getElementById('zoom-in').click()")
    expect("zooming draws anew", drawn(page, "timeline") != was)
    page.value("document.querySelector('details').open = true, document.getElementById('to-peak').click()")
    rows = page.value("document.querySelectorAll('#blocks tbody tr').length")
    expect("blocks are a table too", rows == report(page)["drawn"], rows)


def shows_reports(page):
    """What was said when a request was refused, where that is chosen in the list or on the timeline."""
    page.to_front()
    page.value("[...document.querySelectorAll('#events button')].find(b => b.innerText.includes('Out of memory')).click()")
    shown = text(page, "report")
    expect("a refusal shows its report", shown.startswith("weir: out of memory: ") and "\n  hint " in shown, shown)
    listed = page.value("[...document.querySelectorAll('#events pre')].filter(p => !p.hidden).map(p => p.innerText)")
    expect("also in the list", listed == [shown], listed)
    page.value("document.getElementById('timeline').focus()")
    page.key("Home")
    expect("and nothing else does", page.value("document.getElementById('report').hidden") is True
           and page.value("[...document.querySelectorAll('#events pre')].every(p => p.hidden)"))
    beside = page.value("(scale.x(run().happenings.find(h => h.action === 'out_of_memory').moment) + 2) / $('timeline').clientWidth")
    page.click("timeline", beside)
    expect("a click beside its mark goes there", text(page, "report").startswith("weir: out of memory: "), text(page, "report"))


def lists_what_layers_did(page):
    listed = text(page, "events")
    for words in ("Moved idle chunks, 4.00 MiB, tag batch", "Spilled to the host 4.00 MiB, tag batch", "Brought back from the host 4.00 MiB"):
        expect(f"it is listed: {words}", words in listed, listed)
    expect("and counted", "1 × move" in text(page, "events-summary"), text(page, "events-summary"))


def says_what_is_not_known(opens):
    said = {name: text(opens(name), "not-known") for name in ("segments", "log", "hostile")}
    expect("a stack with a trace below its pool knows most", said["segments"] == "Not known: what was pending before the end.", said)
    expect("one without does not know when segments came", "when segments came and went" in said["hostile"], said)
    expect("a log knows no segments", said["log"] == "Not known: which segments there were; what was freed and still pending.", said)


def has_names(page):
    """Everything that can be reached or is a picture has a name for who does not see it."""
    nodes = page.call("Accessibility.getFullAXTree")["nodes"]
    wanted = [n for n in nodes if not n.get("ignored") and n["role"].get("value") in ("slider", "button", "radio", "image", "img", "link")]
    nameless = [n["role"]["value"] for n in wanted if not n["name"].get("value")]
    expect("the parts of the page have names", len(wanted) > 10 and not nameless, nameless)


def keeps_data_in_its_place(page):
    expect("the title is the page's own", page.value("document.title").startswith("hostile"), page.value("document.title"))
    expect("no element came out of the data", page.value("document.querySelectorAll('script').length") == 2
           and page.value("document.querySelectorAll('img').length") == 0)
    tags = report(page)["byTag"]
    for name in ("</script><script>document.title='out'</script>", "<!--<script>", "\u2028 line \u2029", "\"'\\`${1}", "@@DATA@@",
                 "<img src=x onerror=document.title='out'>", "\ufffd\ufffd", "]]>", "__proto__"):
        expect(f"a tag is shown as it is: {ascii(name)}", tags.get(name) == 1024, list(tags))
    shown = text(page, "holders")
    expect("also in the table", "<!--<script>" in shown and "onerror" in shown, shown)


def does_little(page, known):
    """100,000 events: opening looks at each a few times, a move at none but those near a keyframe."""
    page.to_front()
    opened = report(page)["steps"]
    expect("opening is linear", opened < 12 * known["events"], opened)
    for across in (0.2, 0.8, 0.5):
        before = report(page)["steps"]
        page.click("timeline", across)
        moved = report(page)["steps"] - before
        expect("a move looks at few events", 0 < moved < 3 * known["events"] // 10, moved)
    before = report(page)["steps"]
    page.key("ArrowRight")
    expect("so does a key", report(page)["steps"] - before < 3 * known["events"] // 10, report(page)["steps"] - before)


def shows_a_single_event(page):
    """Which has a tag of a million characters."""
    said = page.value("""(() => {
        const said = [], draw = CanvasRenderingContext2D.prototype.fillText;
        CanvasRenderingContext2D.prototype.fillText = (text, x, y) => { said.push([text, y]); };
        const drawn = drawTimeline($('timeline'), run(), views[0], null);
        CanvasRenderingContext2D.prototype.fillText = draw;
        return said.filter(([text, y]) => y > drawn.bottom + 1).map(([text]) => text);
    })()""")
    expect("the axis has each number once", said == ["0", "1"], said)
    page.value("document.querySelector('details').open = true, document.getElementById('to-peak').click()")
    page.click("map", 0.5, 0.5)
    for element in ("legend", "map-legend", "holders", "blocks", "pointed"):
        shown = text(page, element)
        expect(f"{element}: a long tag is shortened", "xxx" in shown and "…" in shown and len(shown) < 400, (len(shown), shown[:400]))


def compares(page):
    shown = text(page, "comparison")
    expect("two runs are compared", "segments" in shown and "one growable range" in shown and "Peak reserved" in shown, shown)
    was = report(page), drawn(page, "timeline")
    page.value("document.querySelectorAll('#runs input')[1].click()")
    expect("and each can be shown", text(page, "name") == "one growable range" and drawn(page, "timeline") != was[1])
    expect("with its ranges", "growable range" in text(page, "map-summary"), text(page, "map-summary"))


def main():
    if program() is None:
        print("skipped: no Chromium here (sudo apt-get install chromium, or WEIR_CHROMIUM=/path/to/it)")
        sys.exit(77)
    with tempfile.TemporaryDirectory() as folder, Browser() as browser:
        written = subprocess.run([sys.argv[1], folder], capture_output=True, text=True, check=True).stdout
        known = {line["page"]: line for line in map(json.loads, written.splitlines())}
        opened = []

        def opens(name, **options):
            opened.append((name, browser.open(f"{folder}/{name}.html", **options)))
            return opened[-1][1]

        for name in known:
            shows_what_the_library_knows(opens(name), known[name])
        pages = dict(opened)
        for name in ("segments", "range", "large"):
            counts_free_memory(pages[name], name)
        obeys(pages["segments"])
        shows_reports(pages["segments"])
        lists_what_layers_did(opens("moves"))
        says_what_is_not_known(opens)
        has_names(pages["segments"])
        keeps_data_in_its_place(pages["hostile"])
        does_little(pages["large"], known["large"])
        compares(opens("both"))
        shows_a_single_event(opens("one"))
        expect("a page of nothing opens", report(opens("nothing"))["count"] == 0)
        expect("and one of blocks far apart", report(opens("ends"))["drawn"] == 2)
        phone = opens("both", width=390, height=844, phone=True)
        expect("a phone's width suffices", phone.value("document.documentElement.scrollWidth") <= 390)
        dark, light = (opens("range", dark=d).value("getComputedStyle(document.body).backgroundColor") for d in (True, False))
        expect("dark is dark", dark != light, (dark, light))
        for name, page in opened:
            expect(f"{name}: nothing on the console, nothing asked of the network", not page.complaints(), page.complaints())
    print("all as expected" if failed == 0 else f"{failed} failed")
    sys.exit(1 if failed else 0)


main()
