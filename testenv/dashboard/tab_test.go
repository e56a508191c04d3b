package dashboard

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
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

	"github.com/pqbridge/pqbridge/testenv"
	"github.com/pqbridge/pqbridge/testenv/harness"
)

// tab is a page in the browser. Its methods fail the test if something does not happen in time. At
// the end of the test, whatever the browser complained about fails it, too.
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

func openTab(
	t *testing.T, base string, in context.Context, options ...chromedp.ContextOption,
) *tab {
	t.Helper()
	b := &tab{T: t, base: base}
	b.expected = []string{"htmx:sendAbort", "htmx:afterRequest"} // of a filter that is typed on
	ctx, end := chromedp.NewContext(in, append(options, chromedp.WithListener(b.note))...)
	b.ctx = ctx

	t.Cleanup(func() {
		if t.Failed() {
			text, err := evaluate[string](b, "document.body.innerText")
			t.Logf("%s shows (%v):\n%s", b.location(), err, harness.Shorten("page", text))
		}

		end()
		b.mu.Lock()
		defer b.mu.Unlock()

		for _, complaint := range b.complaints {
			isIn := func(part string) bool { return strings.Contains(complaint, part) }
			if !slices.ContainsFunc(b.expected, isIn) {
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

// note keeps what the browser has to complain about: exceptions, errors on the console, violations
// of the Content-Security-Policy, requests that failed.
func (b *tab) note(event any) {
	complaint := ""
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		complaint = e.ExceptionDetails.Text
		if e.ExceptionDetails.Exception != nil {
			complaint += " " + e.ExceptionDetails.Exception.Description
		}
	case *runtime.EventConsoleAPICalled:
		if e.Type == runtime.ConsoleAPICalledTypeError ||
			e.Type == runtime.ConsoleAPICalledTypeWarning {
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
	// The tab would end with a deadline of the first call.
	go func() { done <- chromedp.Do(b.ctx, steps...) }()

	select {
	case err := <-done:
		if err != nil {
			b.Fatalf("the browser at %s: %v", b.location(), err)
		}
	case <-time.After(testenv.Patience):
		b.Fatal("the browser does not answer, or what was wanted of it did not come")
	}
}

// call sends a command of the DevTools protocol.
func call[P, R any](b *tab, command cdp.Command[P, R], params P) {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, testenv.Patience)
	defer cancel()
	if _, err := chromedp.Call(ctx, command, params); err != nil {
		b.Fatal(err)
	}
}

// open goes to a page. The path may be a whole address. It does so until expressions of JavaScript
// are true, if there are any: what a page does not know when it is asked for, such as what the user
// may do, it leaves out, and some of it does not come by itself.
func (b *tab) open(path string, until ...string) {
	b.Helper()
	if strings.HasPrefix(path, "/") {
		path = b.base + path
	}
	testenv.Eventually(b.T, func() error {
		b.run(chromedp.Navigate(path))
		for _, expression := range until {
			if err := b.check(expression); err != nil {
				return err
			}
		}

		return nil
	})
}

// at waits until the page with this path is there, with its scripts.
func (b *tab) at(path string) {
	b.Helper()
	b.until("location.pathname == " + quoted(path) + ` && document.readyState == "complete"`)
}

func (b *tab) location() string {
	location, err := evaluate[string](b, "location.href")
	if err != nil {
		return err.Error()
	}

	return location
}

// evaluate returns what an expression of JavaScript is, or what its promise brings. It may use $
// and $$ for the first and all elements with a selector.
func evaluate[T any](b *tab, expression string) (T, error) {
	ctx, cancel := context.WithTimeout(b.ctx, testenv.Patience)
	defer cancel()
	return chromedp.Run(ctx, chromedp.Evaluate[T]("(($, $$) => ("+expression+
		"))(s => document.querySelector(s), s => [...document.querySelectorAll(s)])",
		chromedp.EvalAwaitPromise))
}

// eval is evaluate for an expression that cannot fail.
func eval[T any](b *tab, expression string) T {
	b.Helper()
	value, err := evaluate[T](b, expression)
	if err != nil {
		b.Fatalf("%s at %s: %v", expression, b.location(), err)
	}

	return value
}

// do runs JavaScript.
func (b *tab) do(statements string) {
	b.Helper()
	eval[bool](b, "(() => { "+statements+"; return true })()")
}

// check returns an error if an expression of JavaScript is not true.
func (b *tab) check(expression string) error {
	ok, err := evaluate[bool](b, "Boolean("+expression+")")
	if err == nil && !ok {
		err = errors.New("it is not true")
	}
	if err != nil {
		return fmt.Errorf("%s: %w", expression, err)
	}

	return nil
}

// until waits until an expression of JavaScript is true.
func (b *tab) until(expression string) {
	b.Helper()
	testenv.Eventually(b.T, func() error { return b.check(expression) })
}

// quoted is a text as JavaScript has it.
func quoted(text string) string {
	literal, _ := json.Marshal(text) // never returns an error for a string
	return string(literal)
}

// text returns what can be read in an element, "" without one.
func (b *tab) text(selector string) string {
	b.Helper()
	return eval[string](b, "$("+quoted(selector)+")?.innerText ?? ''")
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
		b.until(fmt.Sprintf("$(%s)?.innerText.includes(%s)", quoted(selector), quoted(text)))
	}
}

// has waits until there are that many elements.
func (b *tab) has(n int, selector string) {
	b.Helper()
	b.until(fmt.Sprintf("$$(%s).length == %d", quoted(selector), n))
}

// click clicks on the first element that matches, as a person does, once it can be clicked.
func (b *tab) click(selector string) {
	b.Helper()
	b.clickOn("[$(" + quoted(selector) + ")].find(e => e?.checkVisibility() && !e.disabled)")
}

// press clicks on the button or the link with this text, or that begins with it, below an element.
func (b *tab) press(selector, text string) {
	b.Helper()
	b.clickOn(fmt.Sprintf(`(() => {
		const kinds = "button, a, summary, input[type=submit], label:has(input[type=radio])"
		const all = $$(%s).flatMap(e => [...e.querySelectorAll(kinds)])
			.filter(e => e.checkVisibility() && !e.disabled)
		const text = e => (e.innerText || e.value || "").trim()
		return all.find(e => text(e) == %[2]s) ?? all.find(e => text(e).startsWith(%[2]s))
	})()`, quoted(selector), quoted(text)))
}

// clickOn clicks where an element is. The page changes meanwhile: if another element has taken its
// place, the click does nothing, and if it was replaced between press and release, there is none.
// Then it is made again.
func (b *tab) clickOn(element string) {
	b.Helper()
	testenv.Eventually(b.T, func() error {
		b.until(element)
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
		missed, err := evaluate[bool](b, "window.landed === false")

		if missed && err == nil { // the click may have led to another page
			return fmt.Errorf("no click lands on %s", element)
		}

		return nil
	})
}

// fill replaces the text of an input.
func (b *tab) fill(selector, text string) {
	b.Helper()
	b.until("$(" + quoted(selector) + ")?.checkVisibility()")
	b.do("const e = $(" + quoted(selector) + "); e.focus(); e.select()")
	b.run(chromedp.KeyEvent(cmp.Or(text, kb.Backspace)))
}

// keys presses keys, without an input in mind. chromedp's own events type the key even if the page
// has a use for it.
func (b *tab) keys(keys string) {
	b.Helper()
	b.until(`document.readyState == "complete"`) // the program that takes keys runs
	for _, key := range keys {
		press := input.DispatchKeyEventParams{Key: string(key), Text: string(key)}
		switch key {
		case '\r':
			press.Key, press.WindowsVirtualKeyCode = "Enter", 13
		case '\x1b':
			press.Key, press.WindowsVirtualKeyCode, press.Text = "Escape", 27, ""
		}

		press.Type = input.DispatchKeyEventTypeKeyDown
		call(b, input.DispatchKeyEvent, press)
		press.Type, press.Text = input.DispatchKeyEventTypeKeyUp, ""
		call(b, input.DispatchKeyEvent, press)
	}
}

// resize gives the page a width, as on a phone with touch if that is narrow.
func (b *tab) resize(width, height int64) {
	b.Helper()
	screen := emulation.SetDeviceMetricsOverrideParams{
		Width:             width,
		Height:            height,
		DeviceScaleFactor: 1,
	}

	if width < 600 {
		screen.Mobile, screen.DeviceScaleFactor = true, 2
	}

	call(b, emulation.SetDeviceMetricsOverride, screen)
	touch := emulation.SetTouchEmulationEnabledParams{Enabled: screen.Mobile}
	call(b, emulation.SetTouchEmulationEnabled, touch)
}

// isTooWide returns the elements that are wider than the window, unless they scroll by themselves.
func (b *tab) isTooWide() string {
	b.Helper()
	return eval[string](b, `(() => {
		const {clientWidth: width, scrollWidth: all} = document.documentElement
		if (all <= width) return ""
		const right = e => Math.round(e.getBoundingClientRect().right)
		const wide = $$("body *").filter(e => right(e) > width + 1).slice(0, 5)
		return all + " of " + width + ": " + wide.map(e =>
			e.tagName + "." + e.className + " " + right(e) + " " +
			(e.innerText ?? "").slice(0, 40)).join("; ")
	})()`)
}
