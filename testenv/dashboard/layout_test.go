package dashboard

import (
	"strings"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/client"
)

// contrasts returns what can be read worse than WCAG's level AA wants: 4.5 to 1, or 3 to 1 for large texts.
const contrasts = `(() => {
	const parse = text => (text.match(/[\d.]+/g) ?? []).map(Number)
	const canvas = document.createElement("canvas").getContext("2d", {willReadFrequently: true})
	const rgb = colour => { // whatever the notation
		canvas.clearRect(0, 0, 1, 1)
		canvas.fillStyle = colour
		canvas.fillRect(0, 0, 1, 1)
		const [r, g, b, a] = canvas.getImageData(0, 0, 1, 1).data
		return [r, g, b, a / 255]
	}
	const over = (top, bottom) => [0, 1, 2].map(i => top[i] * top[3] + bottom[i] * (1 - top[3]))
	const behind = e => {
		const layers = []
		for (; e; e = e.parentElement) layers.push(rgb(getComputedStyle(e).backgroundColor))
		return layers.reverse().reduce((bottom, top) => over(top, bottom), [255, 255, 255])
	}
	const light = c => {
		const [r, g, b] = c.map(v => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
		return 0.2126 * r + 0.7152 * g + 0.0722 * b
	}
	const poor = new Set()
	const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT)
	while (texts.nextNode()) {
		const e = texts.currentNode.parentElement
		if (!texts.currentNode.data.trim() || !e.checkVisibility({opacityProperty: true, visibilityProperty: true}) || e.closest(":disabled, .unseen, .skip, svg, option")) continue
		const style = getComputedStyle(e), background = behind(e)
		const [a, b] = [light(over(rgb(style.color), background)), light(background)]
		const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05)
		const size = parseFloat(style.fontSize), large = size >= 24 || size >= 18.66 && style.fontWeight >= 700
		if (ratio < (large ? 3 : 4.5)) poor.add(texts.currentNode.data.trim().slice(0, 30) + " (" + e.tagName + "." + e.className + ") " + ratio.toFixed(2))
	}
	return [...poor].slice(0, 8).join("; ")
})()`

// TestLayout: every page fits a phone, without scrolling to the side, and can be read in light and dark.
func TestLayout(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	s.pushMany("jobs", 150)
	long := strings.Repeat("a-long-name-", 10)
	s.push(long, 1<<62, strings.Repeat("unbreakable", 100))
	s.push("jobs", -1<<62, strings.Repeat("W", 5000), `{"customer": {"name": "`+strings.Repeat("x", 500)+`"}}`)
	s.bury("jobs", strings.Repeat("a long reason ", 15))
	s.bury("jobs", strings.Repeat("unbreakable", 15))
	_, err := s.client.PriorityQueue("jobs").LeaseMin(t.Context())
	must(t, err)
	_, err = s.client.PriorityQueue("jobs").Configure(t.Context(), client.Settings{PauseUntil: time.Now().Add(1000 * time.Hour), Backoff: []time.Duration{time.Second, time.Hour}})
	must(t, err)
	dead := s.ids("jobs-dead")

	b := newTab(t, s.url)
	for _, width := range []int64{360, 1200} {
		b.resize(width, 740)
		for _, path := range []string{
			"/", "/dead", "/bridges", "/queue/pq/jobs", "/queue/pq/" + long, "/queue/pq/jobs/items", "/queue/pq/jobs-dead/items",
			"/queue/pq/jobs-dead/item/" + dead[0], "/queue/pq/jobs-dead/item/" + dead[1] + "?as=hex", "/queue/pq/" + long + "/item/" + s.ids(long)[0],
		} {
			for _, theme := range []string{"light", "dark"} {
				b.theme(theme)
				b.open(path)
				b.until(`document.querySelector("main h1, main table")`)
				eval[bool](b, `(() => { document.querySelectorAll("details").forEach(d => d.open = true); return true })()`)
				if wide := b.isTooWide(); wide != "" {
					t.Errorf("%s at %d px is too wide: %s", path, width, wide)
				}
				if poor := eval[string](b, contrasts); poor != "" {
					t.Errorf("%s in %s is hard to read: %s", path, theme, poor)
				}
			}
		}
		b.open("/queue/pq/jobs-dead/items")
		b.click("[data-pick-all]")
		b.press("#bulk", "Remove…")
		b.seesIn("#act", "2 items")
		if wide := eval[string](b, `(r => r.left < 0 || r.right > innerWidth ? r.left + " to " + r.right : "")(document.querySelector("#act").getBoundingClientRect())`) + b.isTooWide(); wide != "" {
			t.Errorf("the dialog at %d px is too wide: %s", width, wide)
		}
	}
}

// TestTouch: what can be touched on a phone is large enough: 24 px by 24, WCAG's target size (AA), unless it is in a line of text.
func TestTouch(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	s.pushMany("jobs", 30)
	b := newTab(t, s.url)
	b.resize(360, 740)
	for _, path := range []string{"/", "/queue/pq/jobs", "/queue/pq/jobs/items", "/queue/pq/jobs/item/" + s.ids("jobs")[0]} {
		b.open(path)
		b.until(`document.querySelector("main h1, main table")`)
		small := eval[string](b, `[...document.querySelectorAll("button, select, summary, nav a, input:not([type=hidden])")]
			.filter(e => e.checkVisibility() && !e.closest(".unseen")).map(e => [e, (e.parentElement.matches("label") ? e.nextElementSibling ?? e : e).getBoundingClientRect(), e.getBoundingClientRect()])
			.filter(([e, box, r]) => Math.max(box.height, r.height) < 24 || Math.max(box.width, r.width) < 24)
			.map(([e, box, r]) => e.outerHTML.slice(0, 60) + " " + Math.round(r.width) + "x" + Math.round(r.height)).slice(0, 6).join("; ")`)
		if small != "" {
			t.Errorf("%s has small targets: %s", path, small)
		}
	}
}

func TestKeyboard(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	s.push("jobs", 0, "first", "second", "third")
	s.push("later", 0, "x")
	b := newTab(t, s.url)
	b.open("/")
	b.figures("later", ".c-ready", "1")
	b.keys("?")
	b.until(`document.querySelector("#keys").open`)
	b.keys("\x1b")
	b.until(`!document.querySelector("#keys").open`)
	b.keys("/")
	b.until(`document.activeElement.id == "filter"`)
	b.keys("jo")
	b.has(1, "#rows tr")
	b.keys("\x1b")
	b.keys("j")
	b.keys("\r")
	b.at("/queue/pq/jobs")
	b.open("/queue/pq/jobs/items")
	b.keys("j")
	b.keys("x")
	b.keys("j")
	b.keys("x")
	b.until(`document.querySelectorAll("[name=ids]:checked").length == 2`)
	b.keys("*")
	b.until(`document.querySelectorAll("[name=ids]:checked").length == 3`)
	b.keys("\r")
	b.until(`location.pathname.includes("/item/")`)
	b.seesIn("#value", "second")
	b.until(`document.readyState == "complete"`)
	b.keys("u")
	b.at("/queue/pq/jobs/items")
	b.keys("gb")
	b.at("/bridges")
	b.keys("gd")
	b.at("/dead")
	b.keys("gq")
	b.at("/")
}
