package dashboard

import (
	"cmp"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// patience is how long something may take that should happen at once.
var patience = flag.Duration("patience", 30*time.Second, "how long to wait for what should happen at once")

// tab is a page in the browser. Its methods fail the test if something does not happen in time. At the
// end of the test, whatever the browser complained about fails it, too.
type tab struct {
	*testing.T
	ctx  context.Context
	base string // of addresses

	mu         sync.Mutex
	complaints []string
	expected   []string // parts of complaints that are all right
}

// newTab opens a tab, in a browser of its own: no cookies are shared.
func newTab(t *testing.T, base string) *tab {
	t.Helper()
	return openTab(t, base, started.browser, chromedp.WithNewBrowserContext())
}

func openTab(t *testing.T, base string, in context.Context, options ...chromedp.ContextOption) *tab {
	t.Helper()
	b := &tab{T: t, base: base}
	ctx, end := chromedp.NewContext(in, append(options, chromedp.WithListener(b.note))...)
	b.ctx = ctx
	t.Cleanup(func() {
		if t.Failed() {
			text, err := chromedp.Run(ctx, chromedp.Evaluate[string]("document.body.innerText"))
			t.Logf("%s shows (%v):\n%s", b.location(), err, text)
		}
		end()
		b.mu.Lock()
		defer b.mu.Unlock()
		for _, complaint := range b.complaints {
			if !slices.ContainsFunc(b.expected, func(part string) bool { return strings.Contains(complaint, part) }) {
				t.Errorf("the browser complains: %s", complaint)
			}
		}
	})
	b.run()
	return b
}

// another opens a tab of the same browser, with the same cookies.
func (b *tab) another() *tab {
	b.Helper()
	return openTab(b.T, b.base, b.ctx)
}

// note keeps what the browser has to complain about: exceptions, errors on the console, violations of the
// Content-Security-Policy, requests that failed.
func (b *tab) note(event any) {
	complaint := ""
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		complaint = e.ExceptionDetails.Text
		if e.ExceptionDetails.Exception != nil {
			complaint += " " + e.ExceptionDetails.Exception.Description
		}
	case *runtime.EventConsoleAPICalled:
		if e.Type == runtime.ConsoleAPICalledTypeError || e.Type == runtime.ConsoleAPICalledTypeWarning {
			for _, argument := range e.Args {
				complaint += " " + argument.Description + string(argument.Value)
			}
		}
	case *log.EventEntryAdded:
		if e.Entry.Level == log.EntryLevelError || e.Entry.Level == log.EntryLevelWarning {
			complaint = fmt.Sprintf("%s: %s (%s)", e.Entry.Source, e.Entry.Text, e.Entry.URL)
		}
	}
	if complaint != "" {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.complaints = append(b.complaints, complaint)
	}
}

// expect says that a complaint with this text is all right.
func (b *tab) expect(text string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.expected = append(b.expected, text)
}

// run has the browser do something.
func (b *tab) run(steps ...chromedp.Action[chromedp.Void]) {
	b.Helper()
	done := make(chan error, 1)
	go func() { done <- chromedp.Do(b.ctx, steps...) }() // the tab would end with a deadline of the first call
	select {
	case err := <-done:
		if err != nil {
			b.Fatalf("the browser at %s: %v", b.location(), err)
		}
	case <-time.After(*patience):
		b.Fatal("the browser does not answer, or what was wanted of it did not come")
	}
}

// call sends a command of the DevTools protocol.
func call[P, R any](b *tab, command cdp.Command[P, R], params P) {
	b.Helper()
	if _, err := chromedp.Call(b.ctx, command, params); err != nil {
		b.Fatal(err)
	}
}

// open goes to a page. The path may be a whole address.
func (b *tab) open(path string) {
	b.Helper()
	if strings.HasPrefix(path, "/") {
		path = b.base + path
	}
	b.run(chromedp.Navigate(path))
}

// at waits until the page with this path is there, with its scripts.
func (b *tab) at(path string) {
	b.Helper()
	b.until("location.pathname == " + quoted(path) + ` && document.readyState == "complete"`)
}

func (b *tab) location() string {
	ctx, cancel := context.WithTimeout(b.ctx, time.Second)
	defer cancel()
	location, err := chromedp.Run(ctx, chromedp.Location())
	if err != nil {
		return err.Error()
	}
	return location
}

// eval returns what an expression of JavaScript is, or what its promise brings.
func eval[T any](b *tab, expression string) T {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, *patience)
	defer cancel()
	value, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	if err != nil {
		b.Fatalf("%s at %s: %v", expression, b.location(), err)
	}
	return value
}

// until waits until an expression of JavaScript is true.
func (b *tab) until(expression string) {
	b.Helper()
	deadline := time.Now().Add(*patience)
	for {
		ctx, cancel := context.WithDeadline(b.ctx, deadline)
		ok, err := chromedp.Run(ctx, chromedp.Evaluate[bool]("Boolean("+expression+")"))
		cancel()
		if ok && err == nil {
			return
		}
		if time.Now().After(deadline) {
			b.Fatalf("at %s, after %v: %s is not true (%v)", b.location(), *patience, expression, err)
		}
		<-time.After(20 * time.Millisecond) // pages change at most once a second
	}
}

// quoted is a text as JavaScript has it.
func quoted(text string) string {
	literal, _ := json.Marshal(text) // never returns an error for a string
	return string(literal)
}

// text returns what can be read in an element, "" without one.
func (b *tab) text(selector string) string {
	b.Helper()
	return eval[string](b, "document.querySelector("+quoted(selector)+")?.innerText ?? ''")
}

// sees waits until the page shows all of these texts.
func (b *tab) sees(texts ...string) {
	b.Helper()
	b.seesIn("body", texts...)
}

// seesIn waits until an element shows all of these texts.
func (b *tab) seesIn(selector string, texts ...string) {
	b.Helper()
	for _, text := range texts {
		b.until(fmt.Sprintf("document.querySelector(%s)?.innerText.includes(%s)", quoted(selector), quoted(text)))
	}
}

// count returns how many elements there are.
func (b *tab) count(selector string) int {
	b.Helper()
	return eval[int](b, "document.querySelectorAll("+quoted(selector)+").length")
}

// has waits until there are that many elements.
func (b *tab) has(n int, selector string) {
	b.Helper()
	b.until(fmt.Sprintf("document.querySelectorAll(%s).length == %d", quoted(selector), n))
}

// click clicks on the first element that matches, as a person does, once it can be clicked.
func (b *tab) click(selector string) {
	b.Helper()
	b.clickOn("[document.querySelector(" + quoted(selector) + ")].find(e => e?.checkVisibility() && !e.disabled)")
}

// press clicks on the button or the link with this text, or that begins with it, below an element.
func (b *tab) press(selector, text string) {
	b.Helper()
	b.clickOn(fmt.Sprintf(`(() => {
		const all = [...document.querySelectorAll(%s)].flatMap(e => [...e.querySelectorAll("button, a, summary, input[type=submit], label:has(input[type=radio])")])
			.filter(e => e.checkVisibility() && !e.disabled)
		const text = e => (e.innerText || e.value || "").trim()
		return all.find(e => text(e) == %[2]s) ?? all.find(e => text(e).startsWith(%[2]s))
	})()`, quoted(selector), quoted(text)))
}

// clickOn clicks where an element is. The page changes meanwhile: if another element has taken its place, the click does
// nothing, and if it was replaced between press and release, there is none. Then it is made again.
func (b *tab) clickOn(element string) {
	b.Helper()
	end := time.Now().Add(*patience)
	for landed := false; !landed; {
		if b.until(element); time.Now().After(end) {
			b.Fatalf("no click lands on %s", element)
		}
		at := eval[[]float64](b, `(e => {
			e?.scrollIntoView({block: "center", behavior: "instant"})
			document.removeEventListener("click", window.judge, true)
			window.landed = false
			window.judge = event => {
				if (window.landed = e?.contains(event.target)) return
				event.preventDefault()
				event.stopPropagation()
			}
			document.addEventListener("click", window.judge, {capture: true, once: true})
			const r = e?.getClientRects()[0] ?? {}
			return [r.left + r.width / 2, r.top + r.height / 2]
		})(`+element+`)`)
		b.run(chromedp.MouseClickXY(at[0], at[1]))
		ctx, cancel := context.WithTimeout(b.ctx, *patience)
		missed, err := chromedp.Run(ctx, chromedp.Evaluate[bool]("window.landed === false"))
		cancel()
		landed = !missed || err != nil // the click may have led to another page
	}
}

// fill types a text into an input, in place of what is there.
func (b *tab) fill(selector, text string) {
	b.Helper()
	b.until(fmt.Sprintf("(e => e && e.checkVisibility())(document.querySelector(%s))", quoted(selector)))
	eval[bool](b, fmt.Sprintf("(e => { e.focus(); e.select(); return true })(document.querySelector(%s))", quoted(selector)))
	b.run(chromedp.KeyEvent(cmp.Or(text, kb.Backspace)))
}

// choose selects an option by its value.
func (b *tab) choose(selector, value string) {
	b.Helper()
	eval[bool](b, fmt.Sprintf(`(e => { e.value = %s; e.dispatchEvent(new Event("input", {bubbles: true})); e.dispatchEvent(new Event("change", {bubbles: true})); return true })`+
		`(document.querySelector(%s))`, quoted(value), quoted(selector)))
}

// keys presses keys, without an input in mind. chromedp's own events type the key even if the page has a use for it.
func (b *tab) keys(keys string) {
	b.Helper()
	names := map[rune]string{'\r': "Enter", '\x1b': "Escape"}
	for _, key := range keys {
		press := input.DispatchKeyEventParams{Type: input.DispatchKeyEventTypeKeyDown, Key: cmp.Or(names[key], string(key)), Text: string(key)}
		switch key {
		case '\r':
			press.WindowsVirtualKeyCode = 13
		case '\x1b':
			press.WindowsVirtualKeyCode, press.Text = 27, ""
		}
		call(b, input.DispatchKeyEvent, press)
		press.Type, press.Text = input.DispatchKeyEventTypeKeyUp, ""
		call(b, input.DispatchKeyEvent, press)
	}
}

// resize gives the page a width, as on a phone with touch if that is narrow.
func (b *tab) resize(width, height int64) {
	b.Helper()
	phone := width < 600
	scale := 1.0
	if phone {
		scale = 2
	}
	call(b, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{
		Width: width, Height: height, DeviceScaleFactor: scale, Mobile: phone,
	})
	call(b, emulation.SetTouchEmulationEnabled, emulation.SetTouchEmulationEnabledParams{Enabled: phone})
}

// isTooWide returns the elements that are wider than the window, unless they scroll by themselves.
func (b *tab) isTooWide() string {
	b.Helper()
	return eval[string](b, `(() => {
		const width = document.documentElement.clientWidth
		if (document.documentElement.scrollWidth <= width) return ""
		return document.documentElement.scrollWidth + " of " + width + ": " + [...document.querySelectorAll("body *")]
			.filter(e => e.getBoundingClientRect().right > width + 1).slice(0, 5)
			.map(e => e.tagName + "." + e.className + " " + Math.round(e.getBoundingClientRect().right) + " " + (e.innerText ?? "").slice(0, 40)).join("; ")
	})()`)
}
