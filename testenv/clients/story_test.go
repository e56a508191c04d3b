package clients_test

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/testenv"
)

// story is one run of a scenario, with its system, its drivers, and the jobs that it has met.
type story struct {
	*testing.T
	language language
	env      *testenv.Env // nil until begin
	all      *client.Client
	drivers  []*driver
	names    map[string]string // of ids and places, by what they are
	judge    judge
}

// begin starts a NATS server and a bridge, if there are none yet. A story whose drivers need other
// options calls it first.
func (s *story) begin(o testenv.Options) *testenv.Env {
	s.Helper()
	if s.env == nil {
		s.env = testenv.New(s.T, o)
		s.names = map[string]string{}
		if !o.Stopped {
			s.all = client.New(s.env.Conn, client.WithTimeout(testenv.Patience))
		}
	}
	return s.env
}

// starts starts the NATS server and the bridge of a story that began without.
func (s *story) starts() {
	s.Helper()
	s.env.NATS.Start()
	s.env.Conn = s.env.Connect()
	s.env.Bridge = s.env.StartBridge()
	s.env.Bridge.WaitReady()
	s.all = client.New(s.env.Conn, client.WithTimeout(testenv.Patience))
}

// driver starts a driver in the language of the story.
func (s *story) driver(variables ...string) *driver {
	s.Helper()
	return s.start(s.language, variables...).isReady()
}

// end ends all drivers that still run, and has everything judged.
func (s *story) end() {
	s.Helper()

	// Handlers end before their jobs are acknowledged.
	testenv.Eventually(s, func() error {
		for _, wrong := range s.judge.verdict(s.everything()) {
			if strings.Contains(wrong, "was done, and is leased") {
				return errors.New(s.withNames(wrong))
			}
		}
		return nil
	})

	for _, d := range s.drivers {
		select {
		case <-d.done:
			continue
		default:
		}
		if d.frozen {
			continue
		}

		d.answers("exit", nil, `null`)
		d.exits()
	}

	for _, d := range s.drivers {
		for _, e := range d.heard {
			if e.Event != "error" && !d.killed {
				s.Errorf("%s said more: %s", d.name, d.note(e))
			}
		}
	}
	for _, wrong := range s.judge.verdict(s.everything()) {
		s.Error(s.withNames(wrong))
	}
}

// named returns a name for an id, such as job1 for the first that the story meets.
func (s *story) named(kind, id string) string {
	if name, known := s.names[id]; known {
		return name
	}
	for n := 1; ; n++ {
		name := fmt.Sprint(kind, n)
		if s.idOf(name) == name {
			s.names[id] = name
			return name
		}
	}
}

// idOf returns what the name stands for, or the name itself if it stands for nothing.
func (s *story) idOf(name string) string {
	for id, known := range s.names {
		if known == name {
			return id
		}
	}
	return name
}

// withNames replaces the ids in a text.
func (s *story) withNames(text string) string {
	for id, name := range s.names {
		text = strings.ReplaceAll(text, id, name)
	}
	return text
}

// volatile are members of answers that differ each time.
var volatile = []string{
	"pushed_at", "due", "leased_at", "expires", "finished_at", "kept_until", "next_due",
	"oldest_age_s", "since", "next", "last", "lease", "from", "to",
}

// plain returns an answer with names for ids, and without what differs each time or belongs to the
// bridge.
func (s *story) plain(v any) any {
	switch v := v.(type) {
	case []any:
		for i := range v {
			v[i] = s.plain(v[i])
		}
	case map[string]any:
		for name, member := range v {
			text, isText := member.(string)
			switch {
			case slices.Contains(volatile, name):
				delete(v, name)
			case name == "id" && isText:
				v[name] = s.named("job", text)
			case name == "place" && isText:
				v[name] = s.named("place", text)
			case name == "headers":
				v[name] = s.ownHeaders(member)
			case name == "error" && !isText:
				v[name] = faultIn(member).String()
			default:
				v[name] = s.plain(member)
			}
		}
	}
	return v
}

// ownHeaders returns the headers of a pusher, sorted by name.
func (s *story) ownHeaders(v any) any {
	pairs, isList := v.([]any)
	if !isList {
		return v
	}

	nameOf := func(pair any) string { return fmt.Sprint(pair.([]any)[0]) }
	pairs = slices.DeleteFunc(pairs, func(pair any) bool {
		name := strings.ToLower(nameOf(pair))
		return strings.HasPrefix(name, "pq-") || strings.HasPrefix(name, "nats-")
	})
	slices.SortStableFunc(pairs, func(a, b any) int {
		return strings.Compare(nameOf(a), nameOf(b))
	})
	return pairs
}

// faultIn reads an error within an answer.
func faultIn(v any) (f *fault) {
	must(0, json.Unmarshal(must(json.Marshal(v)), &f))
	return f
}

// codes has the codes of classes that bridges answer.
var codes = map[string]string{
	"BadRequest": "400", "NotFound": "404", "LeaseLost": "409", "Leased": "409",
	"Joined": "409", "TooLarge": "413", "Overloaded": "429", "Internal": "500",
	"Unavailable": "503", "UnknownOutcome": "503",
}

// String is the class of an error and, behind it, its reason, whether the outcome is unknown, and
// the job that it is about. A request that a client or the bridge refuses is a BadRequest either
// way.
func (f *fault) String() string {
	class := f.Class
	if class == "BadArgument" {
		class = "BadRequest"
	}

	words := []string{class}
	if f.Reason != "" {
		words = append(words, f.Reason)
	}
	if unknown := class == "UnknownOutcome" || class == "NoHeartbeat"; f.Unknown != unknown {
		words = append(words, fmt.Sprintf("and unknown is %t", f.Unknown))
	}
	if f.Code != "0" && f.Code != "" && f.Code != codes[class] {
		words = append(words, "with the code "+f.Code)
	}
	if f.Job != "" {
		words = append(words, f.Job)
	}
	return strings.Join(words, " ")
}

// answers sends a command, and wants this answer, as JSON.
func (d *driver) answers(op string, members in, want string) {
	d.Helper()
	d.ask(op, members).answers(want)
}

// answers wants this answer, as JSON, in which ids and places have names and nothing differs from
// time to time.
func (a *asked) answers(want string) {
	a.d.Helper()
	is := a.answer()
	if is.Error != nil {
		a.d.Fatalf("%s: %s: %s (%s): want %s", a.d.name, a.text, is.Error, is.Error.Text, want)
	}

	a.d.judge.answer(a, is)
	got := a.d.plain(is.Value)
	var wanted any
	must(0, json.Unmarshal([]byte(want), &wanted))
	if !reflect.DeepEqual(got, wanted) {
		const text = "%s: %s:\n got %.2000s\nwant %.2000s"
		a.d.Fatalf(text, a.d.name, a.text, must(json.Marshal(got)), want)
	}
}

// refuses sends a command, and wants this error: a class and, where it matters, the reason.
func (d *driver) refuses(op string, members in, want string) {
	d.Helper()
	d.ask(op, members).fails(want)
}

// fails wants this error.
func (a *asked) fails(want string) {
	a.d.Helper()
	is := a.answer()
	if is.Error == nil {
		a.d.Fatalf("%s: %s: %.300v: want the error %s", a.d.name, a.text, is.Value, want)
	}
	if got := a.d.withNames(is.Error.String()); got != want {
		a.d.Fatalf("%s: %s: the error %s (%s): want %s", a.d.name, a.text, got, is.Error.Text, want)
	}
}

// pushes pushes a job, and wants it to get this name.
func (d *driver) pushes(name string, members in) {
	d.Helper()
	priority := "0"
	if given, ok := members["priority"].(string); ok {
		priority = given
	}
	d.answers("push", members,
		fmt.Sprintf(`{"id":%q,"priority":%q,"duplicate":false}`, name, priority))
}

// done is what result answers of a job that is done: its result is bytes in base64, or "" for none.
func done(value string) string {
	text := `null`
	if value != "" {
		text = string(must(json.Marshal(value)))
	}
	return `{"state":"done","value":` + text + `,"error":"","reason":"","progress":null}`
}

// item is what a pop answers of an item with a value in base64.
func item(job, priority, value string) string {
	return fmt.Sprintf(`{"id":%q,"priority":%q,"value":%q,"headers":[],"group":""}`,
		job, priority, value)
}

// leased is what a lease answers of an item.
func leased(item, deliveries string) string {
	return strings.TrimSuffix(item, "}") + fmt.Sprintf(`,"deliveries":%q}`, deliveries)
}

// listed is what items shows of an item without a value or headers.
func listed(job, priority string) string {
	return fmt.Sprintf(`{"id":%q,"priority":%q,`, job, priority) +
		`"state":"ready","deliveries":"0","size":"0","value":""}`
}

// step is a step of a job's script.
type step []string

// do returns the value of a job that does these steps.
func do(steps ...step) string {
	return b64(string(must(json.Marshal(struct {
		Do []step `json:"do"`
	}{steps}))))
}

func b64(text string) string { return base64.StdEncoding.EncodeToString([]byte(text)) }

// eventually sends a command until it gets this answer.
func (d *driver) eventually(op string, members in, want string) {
	d.Helper()
	var wanted any
	must(0, json.Unmarshal([]byte(want), &wanted))
	testenv.Eventually(d, func() error {
		is := d.ask(op, members).answer()
		if got := d.plain(is.Value); is.Error != nil || !reflect.DeepEqual(got, wanted) {
			const text = "%s: %s %v: %v, %v: want %s"
			return fmt.Errorf(text, d.name, op, members, got, is.Error, want)
		}
		return nil
	})
}

// holds waits until the queue has these items, in order: "job1 5 ready 0" is the name of a job, its
// priority, state and deliveries, and the reason of its last failure, if there was one.
func (s *story) holds(queue string, want ...string) {
	s.Helper()
	testenv.Eventually(s, func() error {
		if got := s.itemsOf(s.all.PriorityQueue(queue), ""); !slices.Equal(got, want) {
			return fmt.Errorf("queue %s has %q: want %q", queue, got, want)
		}
		return nil
	})
}

// holdsJobs is holds for the names of the jobs alone.
func (s *story) holdsJobs(queue string, want ...string) {
	s.Helper()
	testenv.Eventually(s, func() error {
		got := s.itemsOf(s.all.PriorityQueue(queue), "")
		for i, line := range got {
			got[i], _, _ = strings.Cut(line, " ")
		}
		if !slices.Equal(got, want) {
			return fmt.Errorf("queue %s has %q: want %q", queue, got, want)
		}
		return nil
	})
}

// holdsBack waits until the items of the queue jobs are delayed, each for so many hours.
func (s *story) holdsBack(want map[string]time.Duration) {
	s.Helper()
	testenv.Eventually(s, func() error {
		page, err := s.all.PriorityQueue("jobs").Items(s.Context(),
			client.ItemsOptions{State: client.Delayed})
		if err != nil {
			return err
		}

		got := map[string]time.Duration{}
		for _, i := range page.Items {
			got[s.named("job", i.ID)] = time.Until(*i.Due).Round(time.Hour)
		}
		if !maps.Equal(got, want) {
			return fmt.Errorf("held back: %v, want %v", got, want)
		}
		return nil
	})
}

// waits waits until that many workers wait for jobs, so that none of them can do all jobs alone.
func (s *story) waits(workers int) {
	s.Helper()
	testenv.Eventually(s, func() error {
		if now := s.env.Bridge.Waiters(); now != workers {
			return fmt.Errorf("%d workers wait: want %d", now, workers)
		}
		return nil
	})
}

// kept waits until the queue keeps these jobs that are done, the newest first: "job1 0 done 1".
func (s *story) kept(queue string, want ...string) {
	s.Helper()
	testenv.Eventually(s, func() error {
		if got := s.itemsOf(s.all.PriorityQueue(queue), client.Done); !slices.Equal(got, want) {
			return fmt.Errorf("queue %s keeps %q: want %q", queue, got, want)
		}
		return nil
	})
}

// itemsOf returns the items of a queue in a state, as a scenario has them.
func (s *story) itemsOf(q *client.Queue, state client.State) []string {
	lines := []string{}
	page, err := q.Items(s.Context(), client.ItemsOptions{State: state, Limit: 1000})
	if err != nil {
		return []string{err.Error()}
	}

	for _, i := range page.Items {
		line := fmt.Sprintf("%s %d %s %d", s.named("job", i.ID), i.Priority, i.State, i.Deliveries)
		if i.Reason != "" {
			line += " " + i.Reason
		}
		lines = append(lines, line)
	}
	return lines
}

// configure changes the settings of the queue jobs, as they are on the wire.
func (s *story) configure(settings client.Settings) {
	s.Helper()
	s.begin(testenv.Options{})
	must(s.all.PriorityQueue("jobs").Configure(s.Context(), settings))
}

// must is for what cannot fail.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
