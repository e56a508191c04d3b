package dashboard

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http/httptest"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/testenv/harness"
)

// views has the view of each page.
func views() map[string]any {
	return map[string]any{
		"queues":    &queuesView{},
		"queue":     &queueView{},
		"items":     &itemsView{},
		"item":      &itemView{},
		"dead":      &deadView{},
		"busy":      &busyView{},
		"schedules": &schedulesView{},
		"schedule":  &scheduleView{},
		"bridges":   &bridgesView{},
		"login":     &form{},
		"error":     new(string),
		"confirm":   &actionView{},
		"done":      &actionView{},
	}
}

// filler sets all that a view holds: texts to one text, and everything else to something. With
// chance, it leaves out some, and takes words that templates know. Texts in checked fields are
// harmless.
type filler struct {
	text    string
	chance  *rand.Rand
	checked []string
}

var words = strings.Fields(
	"pq q live away denied ready leased delayed text json hex min max move purge redrive new old 7")

func (f filler) fill(v reflect.Value) {
	if f.chance != nil && v.Kind() != reflect.Struct && f.chance.IntN(2) == 0 {
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(f.text)
		if f.chance != nil && f.chance.IntN(2) == 0 {
			v.SetString(words[f.chance.IntN(len(words))])
		}
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		v.SetInt(1234567)
	case reflect.Float64:
		v.SetFloat(0.4)
	case reflect.Interface:
		v.Set(reflect.ValueOf(errors.New(f.text)))
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		f.fill(v.Elem())
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			v.SetBytes([]byte(f.text))
			return
		}

		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		f.fill(made(v.Index(0)))
		f.fill(made(v.Index(1)))
	case reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		f.fill(key)
		f.fill(value)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			v.Set(reflect.ValueOf(time.Date(2026, 11, 20, 8, 0, 0, 0, time.UTC)))
			return
		}
		for i := range v.NumField() {
			field := v.Field(i)
			if !field.CanSet() { // embedded, and its type is not exported
				field = reflect.NewAt(field.Type(), field.Addr().UnsafePointer()).Elem()
			}

			if v.Type().Field(i).Anonymous {
				field = made(field)
			}

			within := f
			isText := field.Kind() == reflect.String || field.Kind() == reflect.Slice

			if isText && slices.Contains(f.checked, v.Type().Field(i).Name) {
				within.text = "1"
			}

			within.fill(field)
		}
	}
}

var (
	tags  = regexp.MustCompile(`<(/?[a-zA-Z][^\s>/]*)((?:[^>"']|"[^"]*"|'[^']*')*)>`)
	attrs = regexp.MustCompile(`([^\s"'=<>]+)(?:=("[^"]*"|'[^']*'|[^\s"'>]+))?`)
	// known are the elements of the templates. Style attributes and handlers are what the policy of
	// the dashboard forbids.
	known = regexp.MustCompile(`^/?(html|head|meta|title|link|script|body|a|header|nav|main|div|` +
		`section|datalist|h1|h2|p|span|dl|dt|dd|ul|li|form|label|input|select|option|textarea|` +
		`button|fieldset|legend|noscript|table|caption|thead|tbody|tr|th|td|time|svg|rect|` +
		`polyline|figure|figcaption|details|summary|dialog|footer|kbd|code|strong|abbr|bdi|q|br|` +
		`pre|progress)$`)
	forbidden = regexp.MustCompile(`(?i)^(on.*|style|srcdoc|.*hostile.*)$`)
	scheme    = regexp.MustCompile(`(?i)^["']?\s*(javascript|data|vbscript):`)
)

// made returns what a pointer that is never nil points to, or else the value itself.
func made(v reflect.Value) reflect.Value {
	if v.Kind() != reflect.Pointer {
		return v
	}

	v.Set(reflect.New(v.Type().Elem()))
	return v.Elem()
}

// checkHTML fails if there is anything in the HTML that the templates did not put there.
func checkHTML(t *testing.T, html string) {
	t.Helper()
	text := strings.TrimPrefix(tags.ReplaceAllString(html, ""), "<!doctype html>")
	if i := strings.Index(text, "<"); i >= 0 {
		t.Errorf("a < outside of tags: %.200q", text[i:])
	}

	for _, m := range tags.FindAllStringSubmatch(html, -1) {
		if !known.MatchString(m[1]) {
			t.Errorf("an element %q", m[1])
		}
		if m[1] == "script" && !strings.Contains(m[2], ` src="/static/`) {
			t.Errorf("a script in the page: %s", m[0])
		}

		for _, attr := range attrs.FindAllStringSubmatch(m[2], -1) {
			isAddress := strings.Contains(" href src action formaction hx-get hx-post ",
				" "+attr[1]+" ")
			if forbidden.MatchString(attr[1]) || isAddress && scheme.MatchString(attr[2]) {
				t.Errorf("an attribute %s in %.300s", attr[0], m[0])
			}
		}
	}
}

// Every page renders its zero view, and a view full of hostile texts without letting them out, and
// views that have some of it.
func TestEveryPage(t *testing.T) {
	const hostile = "<hostile>\"><hostile onx=1 style='x'>' hostile=1 " +
		"<script>hostile()</script>`{{.}}<!-- ]]></title></textarea>\xff\x00"
	fillers := map[string]filler{
		"zero":    {},
		"plain":   {text: "text"},
		"hostile": {text: hostile},
		"scheme":  {text: "javascript:hostile()"},
	}

	for seed := range uint64(harness.Times(4, 200)) {
		fillers[fmt.Sprint("seed ", seed)] = filler{
			text:   hostile,
			chance: rand.New(rand.NewPCG(seed, 0)),
		}
	}

	for as, f := range fillers {
		for name, view := range views() {
			t.Run(name+"/"+as, func(t *testing.T) {
				s := &shell{}
				if as != "zero" {
					f.fill(reflect.ValueOf(s).Elem())
					s.HideValues = false
				}

				if as != "zero" {
					f.fill(reflect.ValueOf(view).Elem())
				}

				var b bytes.Buffer
				if err := writePage(&b, name, s, view); err != nil {
					t.Fatal(err)
				}
				checkHTML(t, b.String())
				if as == "plain" && strings.Contains(b.String(), "ZgotmplZ") {
					t.Error("html/template refused a plain text")
				}
			})
		}
	}
}

// A part of a queue in which a filter finds nothing does not say that there is nothing.
func TestNothingInThisPart(t *testing.T) {
	var b bytes.Buffer
	view := &itemsView{Pager: pager{Next: "/queue/pq/jobs/items?after=x"}}

	if err := writePage(&b, "items", &shell{}, view); err != nil {
		t.Fatal(err)
	}

	page := b.String()
	if strings.Contains(page, "No items") || !strings.Contains(page, `rel="next"`) {
		t.Errorf("a part without matches is %s", page)
	}
}

// No text of an item reaches a page with characters that change how its surroundings look.
func TestBidi(t *testing.T) {
	// A bridge has checked these, or pq has, before anybody could choose them.
	checked := strings.Fields(
		"Queue Home Kind Name ID IDs Search State End Match Header First Prev Next " +
			"Title Version Store Action Back Priority Place")
	for _, name := range []string{"items", "item", "dead", "busy", "bridges", "confirm", "error"} {
		view := views()[name]
		filler{
			text:    "a\u202eb\u200bc\u0000d\u2066",
			checked: checked,
		}.fill(reflect.ValueOf(view).Elem())

		if confirm, is := view.(*actionView); is {
			confirm.Action = "move"
		}

		var b bytes.Buffer
		if err := writePage(&b, name, &shell{}, view); err != nil {
			t.Fatal(err)
		}

		// Which nobody sees.
		text := regexp.MustCompile(`<input type="hidden"[^>]*>`).ReplaceAllString(b.String(), "")
		if i := strings.IndexAny(text, "\u202e\u200b\u0000\u2066"); i >= 0 {
			t.Errorf("%s: %q", name, text[max(i-80, 0):i+40])
		}
	}
}

// Assets come from an address that changes with them, and nothing else does.
func TestStatic(t *testing.T) {
	for path, want := range map[string]int{
		assetRoot + "app.css":                  200,
		assetRoot + "app.js":                   200,
		assetRoot + "vendor/htmx.min.js":       200,
		assetRoot + "icon.svg":                 200,
		assetRoot + "none.js":                  404,
		"/static/000000000000/app.css":         404,
		assetRoot + "../templates/layout.html": 404,
	} {
		w := httptest.NewRecorder()
		serveAssets().ServeHTTP(w, httptest.NewRequest("GET", path, nil))
		if w.Code != want {
			t.Errorf("%s: %d, want %d", path, w.Code, want)
		}

		if cached := w.Header().Get("Cache-Control") != ""; cached != (want == 200) {
			t.Errorf("%s: cached %t", path, cached)
		}
	}
}
