package proof_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/fdbpqtest/books"
	"github.com/pqbridge/pqbridge/testenv/proof"
)

// page writes a script into books, or a history: operations, one after the other, a second each.
// They are separated by semicolons: a word, numbers, an outcome other than "done", and fields,
// named as in the JSON of an operation.
//
//	push [item]                             left [items]           are in the store in the end
//	batch counts of the ids                 later duration
//	limit max_leased_per_group [rate=2/9s] [rate_per_group=2/9s]
//	places number                           that the consumer w has
//	pop, peek [item], popdead               len number
//	take, hold [items]                      a pop or lease of three, for=9s, not a minute
//	lease fence deliveries seconds          fetch                  a lease that gets nothing
//	dead fence                              a lease of a dead letter
//	ack, nak, snooze, extend, term, next fence
//	remove, move [item]                     purge, redrive number
//	ask, rerun [item]                       done [item]            is done in the store in the end
//
// of=1 is about that item instead of item 0, with=1 acknowledges it too, got=2 leases it, at=3 is
// the count in its id, begin=2s and end=2s are how much earlier the request is sent, and how much
// later it is answered.
type page struct {
	*testing.T
	books   *books.Books
	history *proof.History // if there are no books
	now     int64
	queue   string            // of operations that name none
	ids     map[string]string // by value; in books "id" unless said otherwise
	keys    map[string]string // unique keys by value
	sizes   map[string]int64  // by value
	groups  map[string]string // by value
}

func newPage(t *testing.T) *page {
	return &page{
		T:      t,
		queue:  "jobs",
		ids:    map[string]string{},
		keys:   map[string]string{},
		sizes:  map[string]int64{},
		groups: map[string]string{},
	}
}

// write writes a script.
func (p *page) write(script string) {
	p.Helper()
	for step := range strings.SplitSeq(script, ";") {
		p.step(strings.Fields(step))
	}
}

// entry is one step of a script.
type entry struct {
	books.Operation
	numbers  []int64
	settings map[string]string
}

func (p *page) parse(words []string) *entry {
	e := &entry{
		Operation: books.Operation{Queue: p.queue, Outcome: books.Done},
		settings:  map[string]string{},
	}

	for _, word := range words {
		n, err := strconv.ParseInt(word, 10, 64)
		key, value, isSetting := strings.Cut(word, "=")

		switch {
		case err == nil:
			e.numbers = append(e.numbers, n)
		case isSetting:
			e.settings[key] = value
		default:
			e.Outcome = books.Outcome(strings.ReplaceAll(word, "-", " "))
		}
	}

	return e
}

// number returns one of the numbers, 0 if there are fewer.
func (e *entry) number(i int) int64 {
	if i < len(e.numbers) {
		return e.numbers[i]
	}
	return 0
}

// step writes one operation.
func (p *page) step(words []string) {
	p.Helper()
	e := p.parse(words[1:])
	item := cmp.Or(e.settings["of"], fmt.Sprint(e.number(0)))

	switch words[0] {
	case "later":
		d, err := time.ParseDuration(words[1])
		must(p.T, err)
		p.now += int64(d)
		return
	case "limit":
		p.limit(e)
		return
	case "places":
		p.books.LimitConsumer(e.Queue, "w", int(e.number(0)))
		return
	case "left":
		for _, n := range append(e.numbers, 0)[:max(1, len(e.numbers))] {
			p.left(cmp.Or(e.settings["queue"], p.queue), fmt.Sprint(n))
		}
		return
	case "done":
		p.books.LeftDone(item, "", e.settings["result"])
		return

	case "push":
		if p.books != nil {
			p.books.New()
		}

		e.Kind, e.Value, e.ID = books.Push, item, p.newID(e, item)
		defer func() {
			p.ids[e.Value], p.keys[e.Value] = e.ID, e.Unique
			p.sizes[e.Value], p.groups[e.Value] = e.Size, e.settings["group"]
		}()
	case "batch":
		p.batch(e)
	case "pop", "peek":
		if e.Kind = books.Kind(words[0] + ".min"); e.Outcome == books.Done {
			e.Value, e.ID, e.Unique, e.Size, e.Group = item, p.newID(e,
				item), p.keys[item], p.sizes[item], p.groups[item]
		}
	case "len":
		e.Kind, e.Len = books.Len, e.number(0)
	case "take", "hold":
		e.Kind, e.Batch = books.PopMin, 3
		for _, n := range e.numbers {
			got := books.Item{Value: fmt.Sprint(n), ID: p.id(fmt.Sprint(n))}
			if words[0] == "hold" {
				length, err := time.ParseDuration(cmp.Or(e.settings["for"], "1m"))
				must(p.T, err)
				e.Kind, e.Wait = books.LeaseMin, int64(length)
				got = p.lease(got.Value, 1, 1, int64(length/time.Second))
			}

			e.Items = append(e.Items, got)
		}
	case "popdead":
		e.Kind, e.Queue, e.Value, e.ID = books.PopMin, "jobs-dead", "0", "letter"
	case "fetch":
		e.Kind = books.LeaseMin
	case "lease":
		value := cmp.Or(e.settings["of"], "0")
		p.ids[value] = cmp.Or(e.settings["as"], p.id(value))
		e.Kind, e.Wait = books.LeaseMin, e.number(2)*int64(time.Second)
		e.Items = []books.Item{p.lease(value, e.number(0), e.number(1), e.number(2))}
	case "dead":
		letter := p.lease("0", e.number(0), e.number(0), 0)
		letter.ID = "letter"
		e.Kind, e.Queue, e.Items = books.LeaseMin, "jobs-dead", []books.Item{letter}

	case "ask":
		e.Kind, e.Value, e.ID = books.Result, item, p.id(item)
	case "rerun":
		e.Kind, e.Value, e.ID = books.Rerun, item, p.id(item)
	case "remove", "move":
		if e.Kind, e.Value, e.ID = books.Kind(words[0]), item, p.id(item); e.Kind == books.Move {
			e.Moved = "moved"
		}
	case "purge", "redrive":
		e.Kind, e.Queue, e.Len, e.Batch = books.Kind(words[0]), "jobs-dead", e.number(0), 100
	default:
		p.use(e, words[0])
	}

	p.enter(e)
}

// use fills in an operation with a token.
func (p *page) use(e *entry, word string) {
	e.Value, e.Fence = cmp.Or(e.settings["of"], "0"), e.number(0)
	e.ID = p.id(e.Value)

	switch e.Kind = books.Kind(word); word {
	case "snooze":
		e.Kind, e.Snooze = books.Nak, true
	case "next":
		e.Kind = books.NextMin
	case "ack", "nak", "extend", "term":
	default:
		p.Fatalf("unknown step %q", word)
	}

	if with := e.settings["with"]; with != "" {
		e.Also = []books.Item{{Value: with, ID: p.id(with), Fence: e.Fence}}
	}

	if got := e.settings["got"]; got != "" {
		e.Items = []books.Item{p.lease(got, 1, 1, 0)}
	}

	if d, err := time.ParseDuration(e.settings["wait"]); err == nil {
		e.Until = p.now + int64(time.Second+d)
	}
}

// batch pushes items 0 and up, with these counts in their ids.
func (p *page) batch(e *entry) {
	e.Kind, e.Batch = books.Push, len(e.numbers)
	for i, count := range e.numbers {
		p.books.New()
		value := fmt.Sprint(i)
		p.ids[value] = fdbpq.ID{Count: count}.String()
		e.Items = append(e.Items, books.Item{Value: value, ID: p.ids[value]})
	}
}

func (p *page) id(value string) string { return cmp.Or(p.ids[value], "id") }

// newID returns the id that an operation gives an item, or finds it with.
func (p *page) newID(e *entry, value string) string {
	count, err := strconv.ParseInt(e.settings["at"], 10, 64)
	switch {
	case err == nil:
	case p.books != nil, p.ids[value] != "":
		return p.id(value)
	default:
		count = e.number(0) + 1
	}

	priority, _ := strconv.ParseInt(e.settings["priority"], 10, 64) // else 0
	return fdbpq.ID{Priority: priority, Count: count}.String()
}

// lease returns an item that the next operation leases for some seconds.
func (p *page) lease(value string, fence, deliveries, seconds int64) books.Item {
	until := p.now + (1+seconds)*int64(time.Second)
	return books.Item{
		Value:      value,
		ID:         p.id(value),
		Group:      p.groups[value],
		Fence:      fence,
		Deliveries: deliveries,
		Until:      until,
	}
}

// limit says what limits the queue.
func (p *page) limit(e *entry) {
	if p.books == nil {
		p.history.MaxLeased = map[string]int{e.Queue: int(e.number(0))}
		return
	}
	must(p.T, p.books.Limit(e.Queue, client.Settings{
		MaxLeasedPerGroup: e.number(0),
		Rate:              e.settings["rate"],
		RatePerGroup:      e.settings["rate_per_group"],
	}))
}

// left finds an item in the end, with the id that it has in that queue.
func (p *page) left(queue, value string) {
	id := p.id(value)
	if strings.HasSuffix(queue, "-dead") {
		id = "letter"
	}

	p.books.Left(queue, value, id)
}

// afterCall is how long before the end of its second a request is sent, in nanoseconds.
const afterCall = 1000

// enter makes an operation, with the fields that were set.
func (p *page) enter(e *entry) {
	p.Helper()
	for name, value := range e.settings {
		d, err := time.ParseDuration(value)
		switch {
		case err == nil:
			value = strconv.FormatInt(int64(d), 10)
		case !json.Valid([]byte(value)):
			value = strconv.Quote(value)
		}
		must(p.T, json.Unmarshal(fmt.Appendf(nil, `{%q:%s}`, name, value), &e.Operation))
	}

	if e.Kind != books.Push {
		for i, item := range e.Items {
			e.Items[i].Size = cmp.Or(e.Size, p.sizes[item.Value])
		}
	}

	op := &e.Operation
	begin, _ := time.ParseDuration(e.settings["begin"]) // else 0
	end, _ := time.ParseDuration(e.settings["end"])

	p.now += int64(time.Second)
	op.Call, op.Return = p.now-afterCall-int64(begin), p.now+int64(end)
	if p.history != nil {
		p.history.Operations = append(p.history.Operations, *op)
		return
	}

	p.books.End(op, p.books.Begin(op))
}

// pageTest is a script and its fault.
type pageTest struct {
	want   string // in the error; none if all is well
	script string
}

// testPages runs check with each script, and wants the fault that goes with it.
func testPages(
	t *testing.T, tests map[string]pageTest, check func(t *testing.T, script string) error,
) {
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			err := check(t, test.script)
			if (err == nil) != (test.want == "") ||
				err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("found: %v; want %q", err, test.want)
			}
		})
	}
}

// testBooks enters each script in books, and closes them.
func testBooks(t *testing.T, tests map[string]pageTest) { testBooksOf(t, "jobs", tests) }

// testBooksOf does so for a queue.
func testBooksOf(t *testing.T, queue string, tests map[string]pageTest) {
	testPages(t, tests, func(t *testing.T, script string) error {
		p := newPage(t)
		p.books, p.queue = books.New(0), queue
		p.write(script)
		_, err := p.books.Close(p.now / 1e6)

		return err
	})
}
