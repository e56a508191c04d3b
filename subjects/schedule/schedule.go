package schedule

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"strings"
	"time"

	"github.com/pqbridge/pqbridge/subjects/strictjson"
)

// Bounds of a schedule.
const (
	// MaxContent is the most bytes of the value and the headers of its items.
	MaxContent = 32 << 10
	// MaxCron is the most bytes of a cron expression, and MaxZone of the name of a zone.
	MaxCron = 1024
	MaxZone = 64
	// MinEvery is the shortest interval, and MaxEvery the longest: ten years.
	MinEvery = time.Second
	MaxEvery = 10 * 365 * 24 * time.Hour
	// MaxJitter is the longest jitter.
	MaxJitter = time.Hour
	// MissedAfter is how late an item can be pushed before its time counts as missed.
	MissedAfter = time.Minute
	// MostAtOnce is the most times that Fire returns.
	MostAtOnce = 100
)

// Values of Schedule.IfMissed, for times that were missed, and of Schedule.Overlap, for a time at
// which an earlier item is still in the queue.
const (
	Once  = "once"  // IfMissed: one item for all times that were missed
	All   = "all"   // IfMissed: an item for each
	Skip  = "skip"  // both: no item
	Allow = "allow" // Overlap: another item
)

// Values of Record.Outcome.
const (
	Pushed     = "pushed"     // an item was pushed
	Overlapped = "overlapped" // no item, because an earlier one was still in the queue
	Missed     = "missed"     // no item, because IfMissed is Skip and the time was missed
)

// ErrInvalid is wrapped by all errors about what a schedule says.
var ErrInvalid = errors.New("bad schedule")

// Schedule is what to push again and again, and when. Its JSON is as here, with durations as text
// such as "1m30s".
type Schedule struct {
	// ID names the schedule within its queue: 1 to 128 bytes of UTF-8 without dots, spaces, * and
	// >.
	ID string `json:"id"`
	// Cron is a cron expression of five fields, @hourly, @daily, @weekly, @monthly, @yearly, or
	// @every and a duration. Every is an interval, MinEvery to MaxEvery. Set exactly one of them.
	Cron  string   `json:"cron,omitempty"`
	Every Duration `json:"every,omitzero"`
	// Zone is the time zone of Cron, such as Europe/Berlin. Default: UTC.
	Zone string `json:"zone,omitempty"`

	// Priority, Value and Headers are for the items. A FIFO queue has no priorities: fdbpq ignores
	// Priority there, and a bridge refuses it.
	Priority int64               `json:"priority,omitzero"`
	Value    []byte              `json:"value,omitempty"`
	Headers  map[string][]string `json:"headers,omitempty"`

	// Jitter spreads the items: each becomes ready later by a different part of it. 0 to MaxJitter.
	Jitter Duration `json:"jitter,omitzero"`
	// IfMissed says what happens for times that could not fire within MissedAfter: Once, the
	// default, Skip or All.
	IfMissed string `json:"if_missed,omitempty"`
	// Overlap is Allow, the default, or Skip: no item while the one before is ready, delayed or
	// leased.
	Overlap string `json:"overlap,omitempty"`
	// Until is when the schedule ends; zero is never.
	Until time.Time `json:"until,omitzero"`
	// Paused keeps the schedule from firing.
	Paused bool `json:"paused,omitzero"`
}

// Record is a schedule as its queue stores it.
type Record struct {
	Schedule
	Since time.Time `json:"since"`         // when it was set; intervals count from here
	Next  time.Time `json:"next,omitzero"` // when it fires next; zero if it is paused or over
	Last  time.Time `json:"last,omitzero"` // the time that it last fired for
	// Outcome is what became of the latest time, which is after Last if it was missed: Pushed,
	// Overlapped or Missed. It is empty before the first time.
	Outcome string `json:"outcome,omitempty"`
	Fired   int64  `json:"fired"` // how many items were pushed
	// Skipped is how many times had no item. If more than 1,000 are missed at once, 1,000 count.
	Skipped int64 `json:"skipped"`
}

// Duration is a time.Duration that is text in JSON.
type Duration time.Duration

// MarshalText implements encoding.TextMarshaler.
func (d Duration) MarshalText() ([]byte, error) {
	return []byte(strictjson.DurationText(time.Duration(d))), nil
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (d *Duration) UnmarshalText(text []byte) error {
	parsed, err := strictjson.ParseDuration(string(text))
	*d = Duration(parsed)
	return err
}

// Want says what UnmarshalText reads.
func (Duration) Want() string { return `a duration such as "15m"` }

// Example is a valid schedule, for error texts.
const Example = `{"id":"nightly","cron":"0 3 * * *","zone":"Europe/Berlin","value":"aGk="}`

// Decode reads a Schedule from JSON, or another struct with fields of one. It refuses unknown
// members. The error wraps ErrInvalid.
func Decode[T any](data []byte) (v T, err error) {
	if err := strictjson.Unmarshal(data, &v); err != nil {
		return v, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return v, nil
}

// Check returns an error that wraps ErrInvalid unless the schedule can be set.
func (s *Schedule) Check() error {
	bad := func(field, format string, args ...any) error {
		return fmt.Errorf("%w: %s: %s", ErrInvalid, field, fmt.Sprintf(format, args...))
	}

	switch size := s.Size(); {
	case len(s.Cron) > MaxCron:
		return bad("cron", "a string of %d bytes: want at most %d", len(s.Cron), MaxCron)
	case len(s.Zone) > MaxZone:
		return bad("zone", "a string of %d bytes: want at most %d", len(s.Zone), MaxZone)
	case (s.Cron == "") == (s.Every == 0):
		return bad("cron", "want it or every, and not both, as in %s", Example)
	case s.Cron == "" && !validInterval(time.Duration(s.Every)):
		return bad("every", "%v: want 1s to ten years (%v), as in \"15m\"",
			time.Duration(s.Every), MaxEvery)
	case s.Jitter < 0 || time.Duration(s.Jitter) > MaxJitter:
		return bad("jitter", "%v: want 0s to 1h, as in \"30s\"", time.Duration(s.Jitter))
	case s.IfMissed != "" && s.IfMissed != Once && s.IfMissed != Skip && s.IfMissed != All:
		return bad("if_missed", "%+.32q: want \"once\", \"skip\" or \"all\"", s.IfMissed)
	case s.Overlap != "" && s.Overlap != Allow && s.Overlap != Skip:
		return bad("overlap", "%+.32q: want \"allow\" or \"skip\"", s.Overlap)
	case (s.Cron == "" || strings.HasPrefix(s.Cron, everyPrefix)) && s.Zone != "":
		return bad("zone", "an interval has none: want it beside cron only")
	case size > MaxContent:
		return bad("value", "value and headers have %d bytes: want at most %d", size, MaxContent)
	}

	if _, err := time.LoadLocation(s.Zone); err != nil || s.Zone == "Local" {
		return bad("zone", "%+.64q is not known: want a name such as \"Europe/Berlin\"", s.Zone)
	}

	next, err := (&Record{Schedule: *s, Since: time.Unix(0, 0)}).after()
	if err != nil {
		return bad("cron", `%+.64q: %v: want five fields such as "0 3 * * *", or "@daily"`,
			s.Cron, err)
	}

	if next(time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)).IsZero() {
		return bad("cron", `%+.64q: no such time comes: want one such as "0 3 * * *"`, s.Cron)
	}
	return nil
}

// When returns when the schedule fires, as text for people.
func (s *Schedule) When() string {
	if s.Every > 0 {
		text := time.Duration(s.Every).String()
		for _, end := range []string{"m0s", "h0m"} {
			if begin, ok := strings.CutSuffix(text, end); ok {
				text = begin + end[:1]
			}
		}
		return "every " + text
	}
	if strings.HasPrefix(s.Cron, everyPrefix) {
		return s.Cron
	}
	return s.Cron + " " + cmp.Or(s.Zone, "UTC")
}

// Size returns about how many bytes the value and headers of an item have.
func (s *Schedule) Size() int {
	n := len(s.Value)
	for name, values := range s.Headers {
		for _, value := range values {
			n += len(name) + len(value)
		}
	}
	return n
}

// everyPrefix begins a cron expression that is an interval.
const everyPrefix = "@every "

// after returns a function that returns the first time of the schedule after another, whether or
// not it is paused or over. Reading the expression and the zone takes longer than many calls of it.
func (r *Record) after() (func(time.Time) time.Time, error) {
	every := time.Duration(r.Every)
	if text, ok := strings.CutPrefix(r.Cron, everyPrefix); ok {
		var err error
		every, err = strictjson.ParseDuration(strings.TrimSpace(text))
		if err != nil || !validInterval(every) {
			return nil, errors.New(`want a duration of 1s to ten years, such as "@every 15m"`)
		}
	}

	if every > 0 {
		return func(t time.Time) time.Time {
			return r.Since.Add((t.Sub(r.Since)/every + 1) * every)
		}, nil
	}

	zone, err := time.LoadLocation(r.Zone)
	if err != nil {
		return nil, err
	}

	w, err := parseCron(r.Cron, zone)
	return func(t time.Time) time.Time { return w.next(t).UTC() }, err
}

func validInterval(d time.Duration) bool { return MinEvery <= d && d <= MaxEvery }

// times returns a function that returns the first time after another at which the schedule fires,
// zero if it does not.
func (r *Record) times() func(time.Time) time.Time {
	after, err := r.after()
	if err != nil || r.Paused { // an error although Check has passed: the zone is missing here
		return func(time.Time) time.Time { return time.Time{} }
	}

	return func(t time.Time) time.Time {
		// If the clock went back, or this bridge's clock is behind, no time fires twice.
		if r.Last.After(t) {
			t = r.Last
		}

		if next := after(t); r.Until.IsZero() || !next.After(r.Until) {
			return next
		}
		return time.Time{}
	}
}

// Set returns the record of a schedule that is set now in place of an old one; nil is none. It
// keeps the counts of the old one and, if the interval is the same, its times. Due times of the old
// one must have fired.
func Set(old *Record, s *Schedule, now time.Time) *Record {
	r := &Record{Schedule: *s, Since: now.Truncate(time.Microsecond).UTC()}
	if old != nil {
		r.Last, r.Outcome, r.Fired, r.Skipped = old.Last, old.Outcome, old.Fired, old.Skipped
		if old.Every == s.Every && old.Cron == s.Cron {
			r.Since = old.Since
		}
	}
	r.Next = r.times()(now)
	return r
}

// CheckUntil returns an error that wraps ErrInvalid if Until keeps the schedule from ever firing,
// paused or not.
func (r *Record) CheckUntil(now time.Time) error {
	if r.Until.IsZero() || !r.Pause(false, now).Next.IsZero() {
		return nil
	}
	return fmt.Errorf("%w: until: %s: the schedule has no time before that: want a later one",
		ErrInvalid, r.Until.Format(time.RFC3339))
}

// Pause returns the record of a schedule that is paused, or continues, from now on.
func (r Record) Pause(paused bool, now time.Time) *Record {
	if r.Paused != paused {
		r.Paused = paused
		r.Next = r.times()(now)
	}
	return &r
}

// Run returns the record of a schedule that fires now, paused or not.
func (r Record) Run(now time.Time) *Record {
	r.Next = now.Truncate(time.Microsecond).UTC()
	return &r
}

// Due reports whether a time has come that has not fired.
func (r *Record) Due(now time.Time) bool { return !r.Next.IsZero() && !r.Next.After(now) }

// mostCounted is how many missed times are counted one by one.
const mostCounted = 1000

// Fire returns the due times that get an item, the earliest first, at most limit and MostAtOnce,
// and moves the record past them. If there are more, Next is still due.
func (r *Record) Fire(now time.Time, limit int) (times []time.Time) {
	if !r.Due(now) {
		return nil
	}

	next := r.times()
	missed := func() bool { return !r.Next.IsZero() && r.Next.Before(now.Add(-MissedAfter)) }

	// Of the missed times at most the first gets an item, and the others are skipped.
	if r.IfMissed != All && missed() {
		if cmp.Or(r.IfMissed, Once) == Once {
			times = append(times, r.Next)
			r.Next = next(r.Next)
		}

		for n := 0; missed(); n++ {
			from := r.Next
			r.Outcome = Missed
			if n >= mostCounted {
				from = now.Add(-MissedAfter - time.Microsecond)
			} else {
				r.Skipped++
			}
			r.Next = next(from)
		}
	}

	for len(times) < min(limit, MostAtOnce) && r.Due(now) {
		times = append(times, r.Next)
		r.Next = next(r.Next)
	}
	return times
}

// ReadyAt returns when the item for a time becomes ready. queue must be unique to the queue, such
// as the prefix of its keys: otherwise all queues with such a schedule would have the same jitter.
func (s *Schedule) ReadyAt(queue string, at time.Time) time.Time {
	if s.Jitter <= 0 {
		return at
	}
	h := fnv.New64a()
	_, _ = fmt.Fprint(h, queue, " ", s.ID, " ", at.UnixMicro()) // never fails
	return at.Add(time.Duration(h.Sum64() % uint64(s.Jitter)))
}

// Encode returns what a queue stores.
func (r *Record) Encode() []byte { return strictjson.Marshal(r) }

// Parse reads what Encode wrote. It ignores members that other versions add.
func Parse(data []byte) (*Record, error) {
	r := new(Record)
	return r, json.Unmarshal(data, r)
}
