package proof_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/fdbpqtest/books"
	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/subjects/settings"
)

const (
	maxJoiner = 50_000               // bytes of a joiner's value
	longJoin  = 24 * time.Hour       // longer than any run
	shortJoin = 2 * settings.MinJoin // so that a joiner's time is over before its members
	maxOpen   = 16                   // joiners that a worker adds members to
	firstNext = "0"                  // the first successor of an acknowledgement, as a joiner
)

// joins has the accounts of joiners and their members, which the books know as items. It finds:
//
//   - a joiner that is served before it has run, or runs twice, with other numbers;
//   - one that has run because all members have ended, and an item that is its member later;
//   - one that has run before its time, with members that have not ended;
//   - numbers that are not those of its members;
//   - a member of another joiner, or of one that it was not pushed for.
type joins struct {
	tolerance int64

	mu      sync.Mutex
	joiners map[string]*joiner // by value
	refs    map[string]*joiner // as members name them
	members map[string]*member // by value
	across  int                // members in other queues than their joiners
	next    int                // joiners and members that are successors
	wrong   []error
}

// joiner is the account of a joiner. Times are in nanoseconds of the history's clock.
type joiner struct {
	value   string
	queue   string
	expires int64         // its time is not over before
	joined  *books.Joined // what it said
	seen    int64         // when the first answer said so
	members []*member
}

// member is the account of a member.
type member struct {
	of      *joiner
	outcome books.Outcome // of its push as a member; "" before that has ended
	fence   int64         // of the newest lease as a member
	until   int64         // when that is over
	bare    bool          // it was delivered, and was no member any more
	end     string        // how it ended, if that is certain

	// openTill is when the newest request was sent whose answer says that it was a member.
	openTill int64
}

func newJoins(skew int64) *joins {
	return &joins{
		tolerance: 2 * (skew + books.ClockSlack),
		joiners:   map[string]*joiner{},
		refs:      map[string]*joiner{},
		members:   map[string]*member{},
	}
}

func (j *joins) problem(format string, args ...any) {
	if len(j.wrong) < 20 {
		j.wrong = append(j.wrong, fmt.Errorf(format, args...))
	}
}

// problems returns everything that is wrong so far, joined.
func (j *joins) problems() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	return errors.Join(j.wrong...)
}

// begin is called before a request is sent.
func (j *joins) begin(op *books.Operation) {
	j.mu.Lock()
	defer j.mu.Unlock()
	switch {
	case op.Kind == books.Push && op.Join > 0:
		of := j.open(op.Queue, op.Items[0].Value, op.Call+op.Join)
		for _, item := range op.Items[1:] {
			j.add(of, op.Queue, item.Value)
		}
	case op.Kind == books.Push && op.Joiner != "":
		j.add(j.refs[op.Joiner], op.Queue, op.Value)
	}

	for _, next := range op.Next {
		switch of := j.refs[next.Joiner]; {
		case next.Join > 0:
			j.open(next.Queue, next.Value, op.Call+next.Join)
		case of != nil:
			j.add(of, next.Queue, next.Value)
		case next.Joiner == firstNext:
			j.add(j.joiners[op.Next[0].Value], next.Queue, next.Value)
		default:
			continue
		}
		j.next++
	}
}

// open opens the account of a joiner.
func (j *joins) open(queue, value string, expires int64) *joiner {
	of := &joiner{value: value, queue: queue, expires: expires}
	j.joiners[value] = of
	return of
}

// add opens the account of a member.
func (j *joins) add(of *joiner, queue, value string) {
	m := &member{of: of}
	if queue != of.queue {
		j.across++
	}
	of.members = append(of.members, m)
	j.members[value] = m
}

// end judges an operation.
func (j *joins) end(op *books.Operation) {
	j.mu.Lock()
	defer j.mu.Unlock()
	switch {
	case op.Kind == books.Push && op.Join > 0:
		if op.Outcome == books.Done {
			j.refs[refOf(op)] = j.joiners[op.Items[0].Value]
		}
		for _, item := range op.Items[1:] {
			j.members[item.Value].outcome = op.Outcome
		}
	case op.Kind == books.Push && op.Joiner != "":
		j.members[op.Value].late(op, op.Outcome)
	case op.Kind.Settles():
		for _, part := range op.Parts() {
			j.use(part)
		}
		j.endNext(op)
	}

	for _, item := range op.Got() {
		if of := j.joiners[item.Value]; of != nil {
			j.told(of, item.Joined, op.Return)
		}
		switch m := j.members[item.Value]; {
		case m != nil:
			j.out(m, op, &item)
		case item.Joiner != "":
			j.problem("not pushed as a member: %s, of %s", item.Value, item.Joiner)
		}
	}
}

// late records the outcome of the push of a member whose joiner was there before.
func (m *member) late(op *books.Operation, outcome books.Outcome) {
	if m.outcome = outcome; outcome == books.Done {
		m.openTill = max(m.openTill, op.Call)
	}
}

// endNext records the outcome of an acknowledgement for the members that it pushes. It pushes a
// member even if the joiner does not wait, which then has none. One that is the joiner of the
// acknowledged item waits, unless its time is over.
func (j *joins) endNext(op *books.Operation) {
	outcome := op.Outcome
	switch {
	case len(op.Items) > 0, outcome == books.Empty, outcome == books.TooLarge:
		outcome = books.Done
	case outcome == books.Stale:
		outcome = books.Refused
	}

	for _, next := range op.Next {
		switch m := j.members[next.Value]; {
		case m == nil:
		case j.refs[next.Joiner] == nil:
			m.outcome = outcome
		case next.Joiner == op.Joiner:
			m.late(op, outcome)
		case outcome == books.Refused:
			m.outcome = outcome
		}
	}
}

// out records a delivery of an item that was pushed as a member.
func (j *joins) out(m *member, op *books.Operation, item *books.Item) {
	switch m.bare = m.bare || item.Joiner == ""; {
	case m.bare:
		return
	case op.Kind.Leases():
		if item.Fence > m.fence {
			m.fence, m.until = item.Fence, item.Until
		}
	default:
		m.end = "gone"
	}
	m.late(op, books.Done)

	if of := j.refs[item.Joiner]; of != nil && of != m.of {
		j.problem("of another joiner: %s, of %s", item.Value, item.Joiner)
	}
	j.refs[item.Joiner] = m.of
}

// use records what an operation did with a lease of a member.
func (j *joins) use(op *books.Operation) {
	m := j.members[op.Value]
	dead := strings.HasSuffix(op.Queue, "-dead")
	if m == nil || m.bare || dead || op.Fence != m.fence || !op.Counts() {
		return
	}

	if op.Return > m.until-j.tolerance { // a pop may have had it, and given it back as no member
		return
	}
	m.openTill = max(m.openTill, op.Call)

	switch {
	case op.Kind == books.Extend:
		m.until = op.Call + op.Wait
	case op.Kind.Acks():
		m.end = "done"
	case op.Kind == books.Term:
		m.end = "dead"
	}
}

// told records what a joiner says of its members, nil if it says nothing.
func (j *joins) told(of *joiner, joined *books.Joined, at int64) {
	switch {
	case joined == nil:
		j.problem("served before it has run: the joiner %s", of.value)
	case of.joined == nil:
		of.joined, of.seen = joined, at
	case *of.joined != *joined:
		j.problem("ran twice: the joiner %s, with %+v and %+v", of.value, *of.joined, *joined)
	}
	of.seen = min(of.seen, at)
}

// left records an item that was found in the store after all had ended.
func (j *joins) left(value string, item *fdbpq.Item) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if of := j.joiners[value]; of != nil {
		info, err := subjects.ParseItemHeaders(item.Message.Headers)
		if err != nil {
			j.problem("left: the joiner %s: %v", value, err)
		}
		j.told(of, (*books.Joined)(info.Joined), math.MaxInt64)
	}
}

// close judges all joiners, and returns everything that is wrong.
func (j *joins) close() error {
	for _, of := range j.joiners {
		if of.joined != nil {
			j.check(of)
		}
	}
	return j.problems()
}

// check judges a joiner that has run.
func (j *joins) check(of *joiner) {
	joined, least, most := of.joined, int64(0), int64(0)
	ends := map[string]int64{}
	for n, m := range of.members {
		if m.outcome != books.Refused {
			most++
		}
		if m.outcome == books.Done && joined.Open == 0 { // else one may have come too late
			least++
		}
		ends[m.end]++
		if joined.Open == 0 && m.openTill > of.seen {
			j.problem("ran before its member %d had ended: the joiner %s, by %v, and %v",
				n, of.value, time.Duration(of.seen), time.Duration(m.openTill))
		}
	}

	all := joined.Done + joined.Dead + joined.Gone + joined.Open
	few := joined.Done < ends["done"] || joined.Dead < ends["dead"] || joined.Gone < ends["gone"]
	switch {
	case joined.Open > 0 && of.seen < of.expires-j.tolerance:
		j.problem("ran before its time, with open members: the joiner %s, %+v", of.value, *joined)
	case all < least || all > most || joined.Open == 0 && few:
		j.problem("wrong numbers: the joiner %s, %+v, of %d to %d members, %v",
			of.value, *joined, least, most, ends)
	}
}

// String says how many joiners there were, and why they ran.
func (j *joins) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	ran, late := 0, 0
	for _, of := range j.joiners {
		if of.joined != nil {
			ran++
			late += int(min(1, of.joined.Open))
		}
	}
	return fmt.Sprintf("%d joiners with %d members, %d of these in other queues, %d of all are "+
		"successors: %d joiners ran, %d of these with open members",
		len(j.joiners), len(j.members), j.across, j.next, ran, late)
}

// drawJoin makes some batches joiners with members.
func (w *teller) drawJoin(op *books.Operation) {
	random := w.workload.random
	if !slices.Contains(w.joined, op.Queue) || random.IntN(2) > 0 {
		return
	}
	op.Delay, op.Join = 0, w.drawTime()
}

// drawTime draws for how long a joiner waits.
func (w *teller) drawTime() int64 {
	if random := w.workload.random; random.IntN(4) == 0 {
		return int64(settings.MinJoin) + random.Int64N(int64(shortJoin))
	}
	return int64(longJoin)
}

// drawMember makes some pushes members of a joiner that may wait.
func (w *teller) drawMember(op *books.Operation) {
	if slices.Contains(w.joined, op.Queue) && w.workload.random.IntN(3) == 0 {
		op.Joiner = w.someJoiner(op.Queue)
	}
}

// someJoiner returns a joiner that may wait, of a queue or of others of its kind, "" if there is
// none.
func (w *teller) someJoiner(queue string) string {
	here := w.workload.random.IntN(2) == 0
	n := slices.IndexFunc(w.open, func(of books.Operation) bool {
		return of.Queue == queue || !here && isFIFO(of.Queue) == isFIFO(queue)
	})
	if n < 0 {
		return ""
	}
	return refOf(&w.open[n])
}

// joinNext makes what some acknowledgements push a joiner with its members, members of the joiner
// of the acknowledged item, or of another one.
func (w *teller) joinNext(op *books.Operation) {
	random := w.workload.random
	if len(op.Next) == 0 || !slices.Contains(w.joined, op.Queue) {
		return
	}

	of := ""
	switch random.IntN(6) {
	case 0, 1:
		of, op.Next[0].Join = firstNext, w.drawTime()
	case 2, 3:
		of = op.Joiner
	case 4:
		of = w.someJoiner(op.Queue)
	}
	for i := range op.Next {
		if op.Next[i].Join == 0 {
			op.Next[i].Joiner = of
		}
	}
}

// configureJoined lets members in each of these queues have joiners in the others of its kind.
func (b *bank) configureJoined(c *caller) {
	for _, name := range b.joined {
		next := settingsOf(name, b.joined).Next
		c.insist(fmt.Sprint("setting ", name), func(ctx context.Context) error {
			_, err := queueOf(c.client, name).Configure(ctx, client.Settings{Next: next})
			return err
		})
	}
}

// rememberJoin keeps some of the joiners that may wait, and drops one that does not.
func (w *teller) rememberJoin(op *books.Operation) {
	switch {
	case op.Kind != books.Push:
	case op.Joiner != "" && op.Outcome == books.Refused:
		w.open = slices.DeleteFunc(w.open,
			func(of books.Operation) bool { return refOf(&of) == op.Joiner })
	case op.Join > 0 && op.Outcome == books.Done:
		w.open = append([]books.Operation{*op}, w.open[:min(len(w.open), maxOpen)]...)
	}
}

// refOf names the joiner that an operation has pushed, as members do.
func refOf(op *books.Operation) string {
	return client.JoinerRef{Queue: op.Queue, ID: op.Items[0].ID}.String()
}

// joinerOf names the joiner of an item, "" if it has none.
func joinerOf(item *client.Item) string {
	if item.Joiner == nil {
		return ""
	}
	return item.Joiner.String()
}

// joined returns the nth message of a push, with what makes it a joiner or a member.
func joined(m client.Message, op *books.Operation, n int) client.Message {
	switch {
	case op.Join > 0 && n == 0:
		return m.With(client.Join(time.Duration(op.Join)))
	case op.Join > 0:
		return m.With(client.Joiner(client.JoinerRef{Frame: 0}))
	case op.Joiner != "":
		return m.With(client.Joiner(sure(subjects.ParseJoiner(op.Joiner))))
	}
	return m
}

// joinHeaders returns what makes a successor a joiner or a member, in a request in which the first
// successor is the frame with that number.
func joinHeaders(next *books.Successor, first int) nats.Header {
	m := client.Message{Headers: nats.Header{}}
	if next.Join > 0 {
		m = m.With(client.Join(time.Duration(next.Join)))
	}
	if next.Joiner != "" {
		ref := sure(subjects.ParseJoiner(next.Joiner))
		ref.Frame += first
		m = m.With(client.Joiner(ref))
	}
	return m.Headers
}

// The accounts of joins accept what may happen and find each kind of fault.
func TestJoinAccounts(t *testing.T) {
	push := func(join time.Duration) books.Operation {
		return books.Operation{
			Kind: books.Push,
			Join: int64(join),
			Items: []books.Item{
				{Value: "joiner", ID: "id"}, {Value: "1"}, {Value: "2"},
			},
		}
	}
	late := books.Operation{Kind: books.Push, Value: "3", Joiner: "jobs id"}
	refused, lost := late, late
	refused.Outcome, lost.Outcome = books.Refused, books.Lost

	took := func(kind books.Kind, item books.Item) books.Operation {
		return books.Operation{Kind: kind, Items: []books.Item{item}}
	}
	lease := func(value string) books.Operation {
		item := books.Item{Value: value, Fence: 1, Joiner: "jobs id", Until: int64(time.Hour)}
		return took(books.LeaseMin, item)
	}
	pop := func(value string) books.Operation {
		return took(books.PopMin, books.Item{Value: value, Joiner: "jobs id"})
	}
	use := func(kind books.Kind, value string) books.Operation {
		return books.Operation{Kind: kind, Value: value, Fence: 1}
	}
	ran := func(done, dead, gone, open int64) books.Operation {
		joined := books.Joined{Done: done, Dead: dead, Gone: gone, Open: open}
		return took(books.PopMin, books.Item{Value: "joiner", Joined: &joined})
	}

	then := func(value, of string, next ...books.Successor) books.Operation {
		return books.Operation{Kind: books.Ack, Value: value, Fence: 1, Joiner: of, Next: next}
	}
	fan := then("0", "", books.Successor{Value: "joiner", Join: int64(time.Hour)},
		books.Successor{Value: "2", Joiner: firstNext})
	more := books.Successor{Value: "3", Joiner: "jobs id"}
	heir, stranger := then("1", "jobs id", more), then("0", "", more)

	long := push(time.Hour)
	short := took(books.LeaseMin, books.Item{Value: "1", Fence: 1, Joiner: "jobs id", Until: 1})
	ack1, ack2 := use(books.Ack, "1"), use(books.Ack, "2")
	for name, test := range map[string]struct {
		want  string // in the error; none if all is well
		steps []books.Operation
	}{
		"done": {"", []books.Operation{
			long, lease("1"), ack1, lease("2"), ack2, ran(2, 0, 0, 0),
		}},
		"dead and gone": {"", []books.Operation{
			long, lease("1"), use(books.Term, "1"), pop("2"), ran(0, 1, 1, 0),
		}},
		"a later one": {"", []books.Operation{long, late, ran(0, 0, 3, 0)}},
		"refused":     {"", []books.Operation{long, ran(0, 0, 2, 0), refused}},
		"perhaps":     {"", []books.Operation{long, lost, ran(0, 0, 3, 0)}},
		"perhaps not": {"", []books.Operation{long, lost, ran(0, 0, 2, 0)}},
		"its time": {"", []books.Operation{
			push(time.Second), ran(0, 0, 0, 2), lease("1"), ack1,
		}},
		"came back": {"", []books.Operation{
			long, ran(0, 0, 2, 0), took(books.PopMin, books.Item{Value: "1"}),
		}},
		"of an acknowledgement": {"", []books.Operation{fan, lease("2"), ran(0, 0, 1, 0)}},
		"added by a member": {"", []books.Operation{
			long, lease("1"), heir, pop("3"), ran(1, 0, 2, 0),
		}},
		"added too late": {"", []books.Operation{
			long, ran(0, 0, 2, 0), stranger, took(books.PopMin, books.Item{Value: "3"}),
		}},
		"not run yet": {"", []books.Operation{long, lease("1"), ack1}},
		"has not run": {"served before", []books.Operation{
			long, took(books.PopMin, books.Item{Value: "joiner"}),
		}},
		"twice": {"ran twice", []books.Operation{long, ran(2, 0, 0, 0), ran(1, 0, 1, 0)}},
		"too early": {"before its member", []books.Operation{
			long, ran(2, 0, 0, 0), lease("1"),
		}},
		"acknowledged": {"before its member", []books.Operation{
			long, lease("1"), ran(2, 0, 0, 0), ack1,
		}},
		"added": {"before its member", []books.Operation{long, ran(2, 0, 0, 0), late}},
		"added by a member, and not counted": {"wrong numbers", []books.Operation{
			long, lease("1"), heir, ran(1, 0, 1, 0),
		}},
		"added by a member, and not waited for": {"before its member", []books.Operation{
			long, lease("1"), ran(0, 0, 3, 0), heir,
		}},
		"added by another job, and not counted": {"wrong numbers", []books.Operation{
			long, stranger, lease("3"), ran(0, 0, 2, 0),
		}},
		"too few of an acknowledgement": {"wrong numbers", []books.Operation{
			fan, ran(0, 0, 0, 0),
		}},
		"of another joiner": {"of another joiner", []books.Operation{
			long, fan, pop("1"), took(books.PopMin, books.Item{Value: "2", Joiner: "jobs id"}),
		}},
		"of no joiner": {"not pushed as a member", []books.Operation{long, pop("9")}},
		"open":         {"before its time", []books.Operation{long, ran(1, 0, 0, 1)}},
		"ended after its lease, so perhaps as no member": {"", []books.Operation{
			long, short, ack1, ran(0, 0, 2, 0),
		}},
		"acknowledged after its lease, so perhaps as no member": {"", []books.Operation{
			long, short, ran(0, 0, 2, 0), ack1,
		}},
		"wrong end": {"wrong numbers", []books.Operation{
			long, lease("1"), ack1, ran(0, 1, 1, 0),
		}},
		"too many": {"wrong numbers", []books.Operation{long, ran(3, 0, 0, 0)}},
		"too few":  {"wrong numbers", []books.Operation{long, late, ran(2, 0, 0, 0)}},
	} {
		j := newJoins(0)
		for n, op := range test.steps {
			op.Queue, op.Outcome = "jobs", cmp.Or(op.Outcome, books.Done)
			op.Call = int64(n) * int64(time.Second)
			op.Return = op.Call + int64(time.Millisecond)
			j.begin(&op)
			j.end(&op)
		}
		if err := j.close(); (err == nil) != (test.want == "") ||
			err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: found: %v; want %q", name, err, test.want)
		}
	}
}
