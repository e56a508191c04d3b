package dashboard

import (
	"strings"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/client"
)

// contrasts returns what can be read worse than WCAG's level AA wants: 4.5 to 1, or 3 to 1 for
// large texts.
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
		const linear = v => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4
		const [r, g, b] = c.map(linear)
		return 0.2126 * r + 0.7152 * g + 0.0722 * b
	}
	// To another theme.
	document.getAnimations().forEach(a => a instanceof CSSTransition && a.finish())
	const poor = new Set()
	const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT)
	while (texts.nextNode()) {
		const e = texts.currentNode.parentElement
		if (!texts.currentNode.data.trim()) continue
		if (e.closest(":disabled, .unseen, .skip, svg, option")) continue
		if (!e.checkVisibility({opacityProperty: true, visibilityProperty: true})) continue
		const style = getComputedStyle(e), background = behind(e)
		const [a, b] = [light(over(rgb(style.color), background)), light(background)]
		const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05)
		const size = parseFloat(style.fontSize)
		const large = size >= 24 || size >= 18.66 && style.fontWeight >= 700
		const text = texts.currentNode.data.trim().slice(0, 30)
		const what = text + " (" + e.tagName + "." + e.className + ") "
		if (ratio < (large ? 3 : 4.5)) poor.add(what + ratio.toFixed(2))
	}
	return [...poor].slice(0, 8).join("; ")
})()`

// tooSmall returns what can be touched on a phone and is smaller than 24 px by 24, WCAG's target
// size (AA), unless it is in a line of text.
const tooSmall = `$$("button, select, summary, nav a, input:not([type=hidden])")
	.filter(e => e.checkVisibility() && !e.closest(".unseen"))
	.map(e => [e, e.parentElement.matches("label") ? e.nextElementSibling ?? e : e])
	.map(([e, beside]) => [e, e.getBoundingClientRect(), beside.getBoundingClientRect()])
	.filter(([, r, box]) =>
		Math.max(box.height, r.height) < 24 || Math.max(box.width, r.width) < 24)
	.map(([e, r]) =>
		e.outerHTML.slice(0, 60) + " " + Math.round(r.width) + "x" + Math.round(r.height))
	.slice(0, 6).join("; ")`

// Every page fits a phone, without scrolling to the side, and can be read in light and
// dark.
func TestLayout(t *testing.T) {
	t.Parallel()

	s := newSystem(t)
	s.pushMany("jobs", 150)
	long := strings.Repeat("a-long-name-", 10)
	s.push(long, 1<<62, strings.Repeat("unbreakable", 100))
	deep := `{"customer": {"name": "` + strings.Repeat("x", 500) + `"}}`
	s.push("jobs", -1<<62, strings.Repeat("W", 5000), deep)
	s.bury("jobs", strings.Repeat("a long reason ", 15))
	s.bury("jobs", strings.Repeat("unbreakable", 15))
	holder := client.Holder(strings.Repeat("worker-of-a-long-name/", 5))
	_, err := s.client.PriorityQueue("jobs").Lease(t.Context(), client.AckWait(12*time.Hour),
		holder)
	must(t, err)

	_, err = s.client.PriorityQueue("jobs").Push(t.Context(), 0, nil,
		client.Group(strings.Repeat("a-tenant-", 14)))
	must(t, err)

	_, err = s.client.PriorityQueue("jobs").Configure(t.Context(), client.Settings{
		Source:     `{"stream":"A-STREAM-WITH-A-LONG-NAME"}`,
		PauseUntil: time.Now().Add(1000 * time.Hour),
		Backoff:    []time.Duration{time.Second, time.Hour},
	})
	must(t, err)

	nightly := client.Schedule{
		ID:   strings.Repeat("nightly-report-", 8),
		Cron: "0,15,30,45 3 1-7 */2 mon-fri",
		Zone: "America/Argentina/Buenos_Aires",
	}

	_, err = s.client.PriorityQueue(long).SetSchedule(t.Context(), nightly)
	must(t, err)
	paused := client.Schedule{ID: "each-hour", Every: client.Interval(time.Hour), Paused: true}
	_, err = s.client.PriorityQueue("jobs").SetSchedule(t.Context(), paused)
	must(t, err)

	s.lengths("jobs-dead", 2)
	dead := s.ids("jobs-dead")

	b := newTab(t, s.url)
	for _, width := range []int64{360, 1200} {
		b.resize(width, 740)
		for path, acts := range map[string]string{ // and what shows that the page has its actions
			"/":              "",
			"/bridges":       "",
			"/dead":          "#dead button",
			"/queue/pq/jobs": "#push form",
			"/busy":          "#busy button",
			"/schedules":     "#schedules button",
			"/schedule":      "form button",
			"/schedule?kind=pq&queue=" + long + "&id=" + nightly.ID: "form button",
			"/queue/pq/" + long:                               "#push form",
			"/queue/pq/jobs/items":                            "#bulk",
			"/queue/pq/jobs-dead/items":                       "#bulk",
			"/queue/pq/jobs-dead/item/" + dead[0]:             ".acts",
			"/queue/pq/jobs-dead/item/" + dead[1] + "?as=hex": ".acts",
			"/queue/pq/" + long + "/item/" + s.ids(long)[0]:   ".acts",
		} {
			b.open(path, `$(`+quoted("main "+acts)+`)`)
			b.do(`$$("details").forEach(d => d.open = true)
				$$(".past td").forEach(d => d.textContent = "1,234,567,890")`)
			if wide := b.isTooWide(); wide != "" {
				t.Errorf("%s at %d px is too wide: %s", path, width, wide)
			}

			if small := eval[string](b, tooSmall); width < 600 && small != "" {
				t.Errorf("%s has small targets: %s", path, small)
			}

			for _, theme := range []string{"light", "dark"} {
				b.theme(theme)
				if poor := eval[string](b, contrasts); poor != "" {
					t.Errorf("%s in %s is hard to read: %s", path, theme, poor)
				}
			}
		}

		b.open("/queue/pq/jobs-dead/items", `$("#bulk .acts button")`)
		b.click("[data-pick-all]")
		b.press("#bulk", "Remove…")
		b.seesIn("#act", "2 items")

		wide := eval[string](b,
			`(r => r.left < 0 || r.right > innerWidth ? r.left + " to " + r.right : "")`+
				`($("#act").getBoundingClientRect())`) + b.isTooWide()
		if wide != "" {
			t.Errorf("the dialog at %d px is too wide: %s", width, wide)
		}
	}
}

// Rows are chosen, opened and selected, and pages reached, by keys alone.
func TestKeyboard(t *testing.T) {
	t.Parallel()

	s := newSystem(t)
	s.push("jobs", 0, "first", "second", "third")
	s.push("later", 0, "x")
	b := newTab(t, s.url)
	b.open("/")
	b.figures("later", ".c-ready", "1")
	b.keys("?")
	b.until(`$("#keys").open`)
	b.keys("\x1b")
	b.until(`!$("#keys").open`)
	b.keys("/")
	b.until(`document.activeElement.id == "filter"`)
	b.keys("jo")
	b.until(`location.search.includes("filter=jo")`) // not only "j", whose table is replaced
	b.has(1, "#rows tr")
	b.keys("\x1b")
	b.keys("j")
	b.until(`document.activeElement.innerText == "jobs"`)
	b.keys("\r")
	b.at("/queue/pq/jobs")
	b.open("/queue/pq/jobs/items", `$("#bulk")`)
	b.keys("jxjx")
	b.has(2, "[name=ids]:checked")
	b.keys("*")
	b.has(3, "[name=ids]:checked")
	b.keys("\r")
	b.until(`location.pathname.includes("/item/") && document.readyState == "complete"`)
	b.seesIn("#value", "second")
	b.keys("u")
	b.at("/queue/pq/jobs/items")

	// Two keys have to come soon after each other: here they do, however busy the machine is.
	for key, path := range map[string]string{
		"b": "/bridges",
		"d": "/dead",
		"y": "/busy",
		"s": "/schedules",
		"q": "/",
	} {
		b.do(`for (const key of ["g", ` + quoted(key) + `])
			document.body.dispatchEvent(new KeyboardEvent("keydown", {key, bubbles: true}))`)
		b.at(path)
	}
}
