package dashboard

import (
	"bytes"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/client"
)

// attacks are texts that run code where a page takes them for HTML, an attribute, a script, an
// address or a template. Each sets window.pwned.
var attacks = []string{
	`<script>window.pwned=1</script>`,
	`<img src=x onerror=window.pwned=1>`,
	`"><svg onload=window.pwned=1>`,
	`' onmouseover='window.pwned=1' autofocus onfocus='window.pwned=1`,
	`</textarea></title></pre></style><script>window.pwned=1</script>`,
	`javascript:window.pwned=1`,
	`{{constructor.constructor("window.pwned=1")()}}`,
	`<a hx-on:click="window.pwned=1" hx-get=/ hx-trigger=load>x</a>`,
	`<form action=/ method=post id=act><button formaction=javascript:window.pwned=1>`,
	`<base href=//evil.test/><meta http-equiv=refresh content="0;url=//evil.test/">`,
	`<iframe srcdoc="<script>parent.pwned=1</script>">`,
	"\u202egnp.exe\u202c \u2066x\u2069 \u200b\ufeff",
}

// raw are values that are no text.
var raw = map[string][]byte{
	"invalid UTF-8": {0xff, 0xfe, 0xc0, 0x80, 'a', 0xed, 0xa0, 0x80},
	"null bytes":    []byte("a\x00b\x00\x00c"),
	"controls":      []byte("\x1b[31mred\x07\x08\r\x7f"),
	"deep JSON":     []byte(strings.Repeat("[", 20_000) + strings.Repeat("]", 20_000)),
	"wide JSON":     []byte(`{"a":` + strings.Repeat("9", 50_000) + `}`),
	"JSON of HTML": []byte(
		`{"</script><script>window.pwned=1</script>":"<img src=x onerror=window.pwned=1>"}`),
	"a long line": bytes.Repeat([]byte("W"), 60_000),
	"empty":       {},
}

// unharmed fails the test if a page ran code of somebody else, or has something that it did not
// make itself.
func (b *tab) unharmed() {
	b.Helper()
	if text := b.text("main"); strings.ContainsAny(text, bidi) {
		b.Errorf("%s shows characters that nobody sees: %q", b.location(), text)
	}
	if eval[bool](b, `"pwned" in window`) {
		b.Errorf("%s runs code of an item", b.location())
	}

	b.has(0, `iframe, object, embed, base, meta[http-equiv], [onerror], [onload], [onmouseover],
		[onfocus], [hx-on\:click], img[src=x], [href^="javascript:"]`)
	if wide := b.isTooWide(); wide != "" {
		b.Errorf("%s is too wide: %s", b.location(), wide)
	}
}

// bidi are characters that change the order of those around them, or cannot be seen.
const bidi = "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u200b\u200e\u200f\ufeff"

// Values, headers and ids run no script and change nothing on a page but their own text.
func TestHostileItems(t *testing.T) {
	t.Parallel()

	s := newSystem(t)
	jobs := s.client.PriorityQueue("jobs")
	var ids []string

	push := func(m client.Message) {
		ack, err := jobs.PushMsg(t.Context(), 0, m)
		must(t, err)
		ids = append(ids, ack.ID)
	}

	for _, attack := range attacks {
		push(client.Message{Value: []byte(attack), Headers: nats.Header{"X-Attack": {attack}}})
	}

	for _, value := range raw {
		push(client.Message{Value: value})
	}

	long := nats.Header{strings.Repeat("N", 30_000): {strings.Repeat("v", 30_000)}}
	push(client.Message{Value: []byte("x"), Headers: long})
	many := nats.Header{}

	for i := range 1000 {
		many.Set(fmt.Sprintf("X-%d", i), attacks[i%len(attacks)])
	}

	push(client.Message{Value: []byte("x"), Headers: many})
	push(client.Message{Value: bytes.Repeat([]byte("<b>é"), (1<<20-200)/5)})

	b := newTab(t, s.url)
	b.open("/queue/pq/jobs")
	b.seesIn("#head", "<script>")
	b.unharmed()
	b.open("/queue/pq/jobs/items")
	b.has(len(ids), "#items tbody tr")
	b.unharmed()

	for i, id := range ids {
		views := []string{"", "?as=text", "?as=json", "?as=hex"}
		if i < len(attacks) {
			views = views[:1]
		}

		for _, as := range views {
			b.open("/queue/pq/jobs/item/" + id + as)
			b.sees(id)
			b.unharmed()
		}
	}

	// The text of a search comes back as text as well.
	for _, attack := range attacks[:4] {
		query := url.Values{"match": {attack}, "header": {"X: " + attack}}
		b.open("/queue/pq/jobs/items?" + query.Encode())
		b.unharmed()
		b.open("/?filter=" + url.QueryEscape(attack))
		b.sees("None of")
		b.unharmed()
	}

	b.open("/queue/pq/jobs/items")
	b.search(attacks[0], "")
	b.seesIn("#items", "match")
	b.unharmed()

	// The dialog that asks.
	b.open("/queue/pq/jobs/items", `$("#bulk .acts button")`)
	b.click("[data-pick-all]")
	b.press("#bulk", "Remove…")
	b.seesIn("#act", "items")
	b.unharmed()
}

// Reasons of failures run no script, in lists, pages of items or causes.
func TestHostileReasons(t *testing.T) {
	t.Parallel()

	s := newSystem(t)
	for i, attack := range attacks {
		s.push("jobs", int64(i), attack)
		// Causes have no numbers.
		s.bury("jobs", strings.ReplaceAll(attack, "pwned=1", "pwned=true"))
	}

	s.push("jobs", 100, "comes back")
	must(t, s.lease("jobs").Nak(t.Context(), time.Hour, client.Reason(attacks[1])))
	s.lengths("jobs-dead", int64(len(attacks)))

	b := newTab(t, s.url)
	for page, sees := range map[string]string{
		"/":                         "jobs",
		"/dead":                     "<script>window.pwned=true</script>",
		"/queue/pq/jobs/items":      "jobs",
		"/queue/pq/jobs-dead":       "jobs",
		"/queue/pq/jobs-dead/items": "jobs",
	} {
		b.open(page)
		b.sees(sees)
		b.unharmed()
	}

	for _, queue := range []string{"jobs", "jobs-dead"} {
		for _, id := range s.ids(queue) {
			b.open("/queue/pq/" + queue + "/item/" + id)
			b.sees(id)
			b.unharmed()
		}
	}
}

// Names of queues, which are letters, digits, - and _, do no harm even if they mean something to
// scripts.
func TestHostileQueues(t *testing.T) {
	t.Parallel()

	s := newSystem(t)
	names := []string{"__proto__", "constructor", strings.Repeat("long-", 25), "act", "items", "-"}

	for _, name := range names {
		s.push(name, 0, "x")
	}

	b := newTab(t, s.url)
	b.open("/")
	b.sees(fmt.Sprintf("%d queues", len(names)))
	b.unharmed()
	b.resize(360, 700)
	b.unharmed()

	for _, name := range names {
		b.open("/")
		b.figures(name, ".c-ready", "1")
		b.open("/queue/pq/" + name)
		b.seesIn("#totals", "Ready\n1")
		b.unharmed()
		b.open("/queue/pq/" + name + "/items")
		b.has(1, "#items tbody tr")
	}
}
