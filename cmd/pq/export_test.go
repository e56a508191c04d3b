package main

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/testenv"
)

// exported is an export as a test reads it.
type exported struct {
	text  string
	head  exportHead
	items []exportedItem
	end   exportEnd
	says  string // standard error
}

// export exports a queue of a kind.
func (c *cli) export(fifo bool, queue string) *exported {
	c.t.Helper()
	stdout, stderr, code := c.run("", "export", queue, fmt.Sprintf("--fifo=%v", fifo))
	if code != exitOK {
		c.t.Fatalf("pq export %s: exit code %d, %s", queue, code, stderr)
	}
	return readExport(c.t, stdout, stderr)
}

func readExport(t *testing.T, text, says string) *exported {
	t.Helper()
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	last := len(lines) - 1
	e := &exported{text: text, says: says, items: make([]exportedItem, last-1)}
	decode(t, lines[0], &e.head)
	for i := range e.items {
		decode(t, lines[1+i], &e.items[i])
	}
	decode(t, lines[last], &struct{ End *exportEnd }{&e.end})
	if want := digestOf(text); e.end.Digest != want {
		t.Errorf("the export says digest %s, and its lines have %s", e.end.Digest, want)
	}
	return e
}

// digestOf computes the digest of an export as docs/pq.md says it.
func digestOf(text string) string {
	end := strings.LastIndex(strings.TrimSuffix(text, "\n"), "\n") + len("\n")
	return fmt.Sprintf("%x", sha256.Sum256([]byte(text[:end])))
}

// sealed gives an export that was changed the digest that it has now.
func sealed(text string) string {
	digest := regexp.MustCompile(`"digest":"[^"]*"`)
	return digest.ReplaceAllString(text, `"digest":"`+digestOf(text)+`"`)
}

// imports imports an export that must come whole, and returns what it says.
func (c *cli) imports(e *exported, queue string, flags ...string) importSum {
	c.t.Helper()
	kind := fmt.Sprintf("--fifo=%v", e.head.Kind == "q")
	args := append([]string{"import", queue, kind, "--json"}, flags...)
	stdout, stderr, code := c.run(e.text, args...)
	var sum importSum
	if code != exitOK || json.Unmarshal([]byte(stdout), &sum) != nil {
		c.t.Fatalf("pq import %s: exit code %d, %s%s", queue, code, stdout, stderr)
	}
	return sum
}

// inGroups returns what an import carries over of items, in the order of each priority and group.
func (e *exported) inGroups() map[string][]string {
	groups := map[string][]string{}
	for _, it := range e.items {
		m := it.pushed()
		key := fmt.Sprint(m.Priority, m.Headers[subjects.HeaderGroup])
		groups[key] = append(groups[key], fmt.Sprintf("%q %q", m.Headers, m.Value))
	}
	return groups
}

// pushed is what an import pushes for an item of an export that is sound.
func (it *exportedItem) pushed() client.PushItem {
	m, err := it.push()
	if err != nil {
		panic(err)
	}
	return m
}

const largest = 1 << 20 // bytes of a message

// fill pushes items of all sorts to a queue, which is paused then, and returns how many. One of
// them is leased, one has failed, and one more is done and kept.
func fill(t *testing.T, q *client.Queue, fifo bool) (n int) {
	t.Helper()
	ctx := t.Context()
	push := func(priority int64, value string, headers nats.Header, options ...client.PushOption) {
		if fifo {
			priority = 0
		}
		m := client.Message{Value: []byte(value), Headers: headers}
		_, err := q.PushMsg(ctx, priority, m, options...)
		must(t, err)
		n++
	}

	_, err := q.Configure(ctx, client.Settings{MaxBytes: 1 << 30, Keep: time.Hour})
	must(t, err)
	push(math.MinInt64, "done", nil)
	push(math.MinInt64, "failed", nil)
	push(math.MinInt64, "leased", nil)
	leases, err := q.LeaseBatch(ctx, 3, client.AckWait(time.Hour))
	must(t, err)
	must(t, leases[0].Ack(ctx))
	must(t, leases[1].Nak(ctx, 0, client.Reason("disk full")))
	n--

	push(math.MinInt64, "", nil)
	push(math.MaxInt64, "\x00\xff\r\n", nats.Header{"X-Bytes": {"\xff\x01", "text"}, "X": {""}})
	push(7, "replaced \uFFFD <&>\u2028", nats.Header{"X-Rune": {"\uFFFD"}})
	push(7, "quiet", nil, client.Delay(time.Hour))
	push(7, "brief", nil, client.TTL(time.Hour))
	push(7, "forever", nil, client.TTL(0))
	push(7, "once", nil, client.Unique("key"), client.MsgID("message"), client.Keep(time.Minute))
	push(7, "key of bytes", nil, client.Unique("\xfe"))
	push(7, "traced", nats.Header{"traceparent": {"00-1-2-01"}, "Type": {"report"}})
	for i := range 12 {
		group, weight := "a", 3
		if i%3 == 2 {
			group, weight = "b", 1
		}
		push(8, fmt.Sprint("turn ", i), nil, client.Group(group), client.Weight(weight))
	}
	push(9, strings.Repeat("é", 100_000), nil)
	// A get of this one leaves out the group, and an import has just the room for its id.
	push(9, strings.Repeat("x", largest-160), nil, client.Group("c"), client.Unique("large"))

	change := client.Settings{
		MaxItems: 3, Discard: "old", TTL: time.Minute, DuplicateWindow: time.Second,
		PauseUntil: time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC), Backoff: []time.Duration{5e9, 0},
		PausedGroups: []string{"a"}, MaxBytes: 1 << 30, Next: []string{"mail"}, Trail: 2,
	}
	_, err = q.Configure(ctx, change)
	must(t, err)
	for _, s := range []client.Schedule{
		{ID: "nightly", Cron: "0 3 * * *", Value: []byte("\xff"), IfMissed: "skip"},
		{ID: "often", Every: client.Interval(time.Hour), Paused: true, Overlap: "skip"},
		{ID: "until", Every: client.Interval(time.Hour), Until: time.Now().Add(48 * time.Hour)},
	} {
		_, err = q.SetSchedule(ctx, s)
		must(t, err)
	}
	return n
}

// A queue of either kind comes whole from one engine to the other, with its settings and schedules:
// values and headers byte for byte, priorities at both ends, delays, expiry, groups and keys. Order
// stays within each priority and group. An import that is repeated adds nothing, and both sides say
// what the new queue does not have.
func TestExportAndImport(t *testing.T) {
	fdb := testenv.Engine{Name: "fdb", Open: testenv.FDB}
	for _, way := range [][2]testenv.Engine{
		{testenv.Pebble(), testenv.Mem()}, {testenv.Pebble(), fdb}, {fdb, testenv.Pebble()},
	} {
		for _, kind := range []string{"pq", "q"} {
			t.Run(way[0].Name+" to "+way[1].Name+" "+kind, func(t *testing.T) {
				t.Parallel()
				from, env := newCLIOn(t, testenv.Options{Engine: way[0]})
				to, _ := newCLIOn(t, testenv.Options{Engine: way[1]})
				fifo, of := kind == "q", client.New(env.Conn)
				q := of.PriorityQueue("jobs")
				if fifo {
					q = of.FIFOQueue("jobs")
				}
				n := fill(t, q, fifo)

				first := from.export(fifo, "jobs")
				sum := to.imports(first, "new")
				second := to.export(fifo, "new")
				delete(sum.NotImported, exportedExpired) // of an import alone

				checkExport(t, first, n)
				if first.says != second.says && strings.Contains(first.says, "not paused") {
					t.Errorf("a paused queue: %s", first.says)
				}
				if sum.Digest != first.end.Digest || sum.Items != int64(n) || sum.Repeated != 0 ||
					!reflect.DeepEqual(sum.NotImported, first.end.NotImported) {
					t.Errorf("imported %+v, want %+v", sum, first.end)
				}
				if !reflect.DeepEqual(second.inGroups(), first.inGroups()) {
					t.Error("the items that were imported are not those exported")
				}
				if string(second.head.Settings) != string(first.head.Settings) ||
					!reflect.DeepEqual(second.head.Schedules, first.head.Schedules) {
					t.Errorf("settings and schedules\n%s %+v\nwant\n%s %+v", second.head.Settings,
						second.head.Schedules, first.head.Settings, first.head.Schedules)
				}

				again := to.imports(first, "new", "--yes")
				if again.Repeated != int64(n) || to.export(fifo, "new").end.Items != int64(n) {
					t.Errorf("a second import added items: %+v", again)
				}
			})
		}
	}
}

// checkExport checks the export of a queue that fill has filled with n items.
func checkExport(t *testing.T, e *exported, n int) {
	t.Helper()
	items := map[string]*exportedItem{}
	for i := range e.items {
		items[string(e.items[i].pushed().Value)] = &e.items[i]
	}

	if len(e.items) != n || e.end.Items != int64(n) || e.end.Schedules != 3 {
		t.Errorf("%d items, the end says %+v; want %d", len(e.items), e.end, n)
	}
	want := map[string]int64{
		exportedIDs: int64(n), exportedTokens: 1, exportedDeliveries: 2, exportedFinished: 1,
		exportedSources: 0, exportedCauses: 0,
	}
	if !reflect.DeepEqual(e.end.NotImported, want) {
		t.Errorf("not imported: %v, want %v", e.end.NotImported, want)
	}

	leased, quiet, brief := items["leased"], items["quiet"], items["brief"]
	if leased.State != client.Ready || !leased.Due.IsZero() {
		t.Errorf("a leased item: %+v, want it ready", leased)
	}
	if quiet.State != client.Delayed || quiet.Due.IsZero() {
		t.Errorf("a delayed item: %+v, want it delayed with its time", quiet)
	}
	if brief.Expires.IsZero() || brief.pushed().Headers[subjects.HeaderTTL] != nil {
		t.Errorf("an item that expires: %+v, want its time", brief)
	}
	if h := items["forever"].Headers; h[subjects.HeaderTTL][0] != subjects.TTLNever {
		t.Errorf("an item that never expires has headers %q", h)
	}
	if h := items["once"].Headers; h[subjects.HeaderUnique][0] != "key" ||
		h[subjects.HeaderKeep][0] != "1m0s" || h[subjects.HeaderMsgID] != nil {
		t.Errorf("an item with keys has headers %q", h)
	}
	large := items[strings.Repeat("x", largest-160)]
	if large == nil || large.Headers[subjects.HeaderGroup][0] != "c" ||
		large.Headers[subjects.HeaderUnique][0] != "large" {
		t.Error("the largest item has lost its value, group or key")
	}
	bytes := items["\x00\xff\r\n"]
	if got := bytes.pushed().Headers; got["X-Bytes"][0] != "\xff\x01" || got["X"][0] != "" {
		t.Errorf("headers that are not UTF-8 have changed: %q", got)
	}
}

// An imported item that expires does so when it would have, give or take the time of the import.
func TestImportedExpiry(t *testing.T) {
	c, _ := newCLI(t)
	c.ok("", "push", "jobs", "brief", "--ttl", "1h")
	first := c.export(false, "jobs")
	c.imports(first, "new")

	got := c.export(false, "new").items[0].Expires.Sub(first.items[0].Expires)
	if got.Abs() > testenv.Patience {
		t.Errorf("it expires %v later", got)
	}

	over := regexp.MustCompile(`"expires":"[^"]*"`).
		ReplaceAllString(first.text, `"expires":"2020-01-01T00:00:00Z"`)
	sum := c.imports(readExport(t, sealed(over), ""), "late")
	if sum.NotImported[exportedExpired] != 1 || sum.Items != 1 {
		t.Errorf("an item whose time is over: %+v", sum)
	}
	c.prints("0\n", "len", "late")
}

// Dead letters are imported as items, without their causes. An empty queue has an export too, which
// says that the queue is not in use.
func TestExportOfDeadLettersAndNothing(t *testing.T) {
	c, _ := newCLI(t)
	c.ok("a\nb\n", "push", "jobs", "--lines")
	for range 2 {
		must(t, c.leased("jobs").Term(t.Context(), "no such user"))
	}

	dead := c.export(false, "jobs-dead")
	sum := c.imports(dead, "new")
	if dead.end.NotImported[exportedCauses] != 2 || sum.NotImported[exportedCauses] != 2 ||
		!strings.Contains(dead.says, "2 causes of dead letters") {
		t.Errorf("exported %+v, imported %+v, says %s", dead.end, sum, dead.says)
	}
	c.prints("a\nb\n", "pop", "new", "--all")

	empty := c.export(false, "nothing")
	if sum := c.imports(empty, "empty"); sum.Items != 0 || sum.Digest != empty.end.Digest {
		t.Errorf("nothing was exported, and imported %+v", sum)
	}
	if !strings.Contains(empty.says, "queue nothing is not in use") {
		t.Errorf("an unused queue: %s", empty.says)
	}
}

// A queue that is not paused says so. Items of a join that goes on are refused: without the others,
// a joiner would wait for nothing, or not at all. Once it is over, what is left of it is exported
// without the outcome: a dead joiner, and a member whose joiner did not wait for it.
func TestExportOfJoins(t *testing.T) {
	c, _ := newCLI(t)
	jobs := client.New(c.conn()).PriorityQueue("jobs")
	open := c.openJoin()
	c.ok("", "push", "jobs", "member", "-H", "Pq-Joiner: "+open.String())
	refused := func(what string) {
		t.Helper()
		stdout, stderr, code := c.run("", "export", "jobs")
		if code != exitError || !strings.Contains(stderr, "belongs to a join that goes on") ||
			!strings.Contains(stderr, "jobs is not paused") || strings.Contains(stdout, `"end"`) {
			t.Errorf("%s: exit code %d, %q and %q", what, code, stdout, stderr)
		}
	}

	refused("a joiner that waits")
	must(t, jobs.Remove(t.Context(), open.ID)) // which ends the join, and the members go on
	member := c.export(false, "jobs")

	next := c.openJoin()
	must(t, next.Close(t.Context()))
	c.ok("", "purge", "jobs", "--state", "delayed", "--yes")
	c.prints("member", "pop", "jobs")
	ran := c.export(false, "jobs")
	must(t, c.leased("jobs").Term(t.Context(), "no paper"))
	dead := c.export(false, "jobs-dead")

	if len(member.items) < 1 || *member.items[0].Value != "member" {
		t.Errorf("a member without its joiner: %s", member.text)
	}
	for what, e := range map[string]*exported{"ready": ran, "dead": dead} {
		sum := c.imports(e, "new-"+what)
		if len(e.items) != 1 || sum.NotImported[exportedJoins] != 1 {
			t.Errorf("a joiner that is %s: %s%+v", what, e.text, sum)
		}
		c.prints("report", "pop", "new-"+what)
	}
}

// An export of version 1 stays readable, byte for byte: testdata/export-1.jsonl, which has all
// members. What is exported of the new queue has the same lines, apart from ids and times, what an
// import leaves out, and the ids as message ids.
func TestExportOfVersion1(t *testing.T) {
	c, _ := newCLI(t)
	text, err := os.ReadFile("testdata/export-1.jsonl")
	must(t, err)
	old := readExport(t, string(text), "")
	ofThis := regexp.MustCompile(`"(queue|exported_at|id|pushed_at|digest|headers_base64)":"[^"]*"`)
	leftOut := regexp.MustCompile(`,"(deliveries":\d+|reason":"[^"]*"|dead_letter":\{[^}]*\})`)
	msgID := regexp.MustCompile(`"headers":\{"Nats-Msg-Id":\["[^"]*"\]\},|` +
		`"Nats-Msg-Id":\["[^"]*"\],`)
	lines := func(text string) []string {
		text = leftOut.ReplaceAllString(ofThis.ReplaceAllString(text, `"$1":""`), "")
		text = msgID.ReplaceAllString(text, "")
		return strings.SplitAfter(text, "\n")
	}

	sum := c.imports(old, "new")
	again := c.export(false, "new")

	if sum.Items != 7 || sum.Schedules != 2 || sum.Digest != old.end.Digest ||
		sum.NotImported[exportedExpired] != 1 {
		t.Errorf("imported %+v", sum)
	}
	want := slices.DeleteFunc(lines(old.text), func(line string) bool {
		return strings.Contains(line, `"brief"`) || strings.HasPrefix(line, `{"end"`)
	})
	if got := lines(again.text); !slices.Equal(got[:len(got)-2], want[:len(want)-1]) {
		t.Errorf("exported again:\n%swant\n%s", strings.Join(got, ""), strings.Join(want, ""))
	}
	for _, v := range []any{exportHead{}, exportedItem{}, exportEnd{}} {
		for _, field := range reflect.VisibleFields(reflect.TypeOf(v)) {
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			if !strings.Contains(old.text, `"`+name+`":`) {
				t.Errorf("version 1 has no member %s: give the format another version", name)
			}
		}
	}
}

// A queue in use is asked about. Then an import that fails leaves it with its settings, removes
// none of its items, and its limits count. One that succeeds replaces the settings, and what it
// adds does not expire as the queue's own items do.
func TestImportIntoQueueInUse(t *testing.T) {
	c, _ := newCLI(t)
	c.ok("a\nb\n", "push", "old", "--lines")
	c.ok("", "config", "old", "max_bytes=1000000", "max_leased=7")
	good := c.export(false, "old")
	own := "ttl=1h0m0s\nmax_items=2\nmax_bytes=9999\ndiscard=old\nduplicate_window=1s\n"
	c.ok("", append([]string{"config", "jobs"}, strings.Fields(own)...)...)
	c.ok("", "push", "jobs", "mine")
	c.ok("", "schedule", "add", "timed", "hourly", "--every", "1h")

	for queue, has := range map[string]string{
		"jobs": "1 item, 5 settings", "timed": "0 items, 1 schedule",
	} {
		_, stderr, code := c.run(good.text, "import", queue)
		want := queue + " is in use, with " + has + ": an import adds"
		if code != exitUsage || !strings.Contains(stderr, want) {
			t.Errorf("%s: exit code %d, %q, want %q", queue, code, stderr, want)
		}
	}
	for _, text := range []string{good.text[:len(good.text)/2], good.text} {
		_, stderr, code := c.run(text, "import", "jobs", "--yes")
		if code != exitError || !strings.Contains(stderr, "line ") {
			t.Errorf("an import that has no room: exit code %d, %q", code, stderr)
		}
		c.prints(own, "config", "jobs")
		c.prints("mine", "peek", "jobs")
	}

	c.ok("", "config", "jobs", "max_items=3")
	if sum := c.imports(good, "jobs", "--yes"); sum.Items != 2 {
		t.Errorf("imported %+v", sum)
	}
	c.prints("max_leased=7\nmax_bytes=1000000\n", "config", "jobs")
	for _, it := range c.export(false, "jobs").items {
		if mine := *it.Value == "mine"; mine == it.Expires.IsZero() {
			t.Errorf("%s expires at %v", *it.Value, it.Expires)
		}
	}
}

// What an import cannot read names its line. Nothing before the last line of an export that is cut
// is lost, and the whole one adds the rest.
func TestImportOfBadExports(t *testing.T) {
	c, _ := newCLI(t)
	c.ok("a\nb\nc\n", "push", "jobs", "--lines")
	good := c.export(false, "jobs")
	line := strings.SplitAfter(good.text, "\n")
	item := line[2]
	const changed = "lines were changed, added or lost"

	for name, m := range map[string]struct {
		code        int
		text, words string
	}{
		"nothing": {exitUsage, "", "line 1: it is not the first line of pq export"},
		"no JSON": {exitUsage, "a,b\n", "line 1: it is not the first line of pq export"},
		"no head": {exitUsage, item, "line 1: it is not the first line of pq export"},
		"version": {exitUsage, `{"pq_export":2,"kind":7}`, "version 2: this pq reads version 1"},
		"setting": {
			exitUsage, strings.Replace(line[0], `"settings":{`, `"settings":{"x":1`, 1),
			`line 1: bad options: unknown member "x"`,
		},
		"head member": {
			exitUsage, strings.Replace(line[0], "{", `{"color":1,`, 1),
			`line 1: unknown member "color"`,
		},
		"schedule": {
			exitUsage, strings.Replace(line[0], `"schedules":[`, `"schedules":[{"id":"x"}`, 1),
			"line 1: bad schedule: cron",
		},
		"kind": {
			exitUsage, strings.Replace(line[0], `"pq"`, `"q"`, 1),
			`line 1: an export of kind "q", and the queue is of kind pq: add or leave out --fifo`,
		},
		"own-dead": {
			exitUsage,
			strings.Replace(line[0], `"settings":{`, `"settings":{"dead_letter":"own-dead"`, 1),
			"line 1: its dead_letter is own-dead, which cannot be its own",
		},
		"cut":    {exitError, strings.Join(line[:3], ""), "line 4 is missing: the export is cut"},
		"within": {exitError, strings.Join(line[:2], "") + item[:20], "line 3: "},
		"no id":  {exitError, line[0] + "{}\n", "line 2: id is missing"},
		"member": {exitError, line[0] + `{"id":"x","color":1}`, `line 2: unknown member "color"`},
		"header": {
			exitError, line[0] + strings.Replace(item, "{", `{"headers":{"Pq-Delay":["x"]},`, 1),
			"line 2: item 0: header Pq-Delay",
		},
		"block": {
			exitError, line[0] + strings.Replace(item, "{", `{"headers_base64":"AAAA",`, 1),
			"line 2: headers_base64: ",
		},
		"two":      {exitError, good.text + good.text, "line 6: something comes after the last"},
		"appended": {exitError, good.text + item, "line 6: something comes after the last"},
		"too long": {
			exitError, line[0] + strings.Repeat("x", maxImportLine+1), "line 2: it has more than",
		},
		"changed": {exitError, strings.Replace(good.text, `"a"`, `"z"`, 1), changed},
		"no line": {exitError, strings.Replace(good.text, item, "", 1), "line 4: " + changed},
		"doubled": {exitError, strings.Replace(good.text, item, item+item, 1), changed},
		"order": {
			exitError, line[0] + line[2] + line[1] + line[3] + line[4], changed,
		},
		"line ends": {exitError, strings.ReplaceAll(good.text, "\n", "\r\n"), changed},
		"no digest": {exitError, strings.Join(line[:4], "") + `{"end":{}}`, changed},
		"items": {
			exitError, strings.Replace(good.text, `"items":3`, `"items":4`, 1),
			"line 5: it counts 4 items and 0 schedules, and there are 3 items and 0 schedules",
		},
		"schedules": {
			exitError, strings.Replace(good.text, `"schedules":0`, `"schedules":1`, 1),
			"line 5: it counts 3 items and 1 schedule, and there are 3 items and 0 schedules",
		},
	} {
		_, stderr, code := c.run(m.text, "import", strings.ReplaceAll(name, " ", "-"))
		if code != m.code || !strings.Contains(stderr, m.words) {
			t.Errorf("%s: exit code %d, %q; want words %q", name, code, stderr, m.words)
		}
		advice := "repeat it with --yes once that is mended: within a day"
		if strings.Contains(m.words, "lines were changed") {
			advice = "import a sound export into another queue"
		}
		if m.code == exitError && !strings.Contains(stderr, advice) {
			t.Errorf("%s: %q does not say what to do", name, stderr)
		}
	}

	nobody := &cli{t: t, server: "nats://127.0.0.1:1"}
	_, stderr, code := nobody.run(good.text, "import", "jobs")
	if code != exitError || !strings.Contains(stderr, "cannot connect to NATS") {
		t.Errorf("without a server: exit code %d, %q", code, stderr)
	}

	if sum := c.imports(good, "cut", "--yes"); sum.Repeated != 2 || sum.Items != 3 {
		t.Errorf("after one that was cut: %+v, want 2 items that were there", sum)
	}
	c.prints("a\nb\nc\n", "pop", "cut", "--all")
}
