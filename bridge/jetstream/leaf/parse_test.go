package leaf

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/url"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// seeds are what servers say: right things, and things that they should not say.
var seeds = []string{
	"PING\r\nPONG\r\n",
	"PING\nPONG\n",
	"-ERR 'Authorization Violation'\r\n",
	"INFO {\"connect_info\":true,\"export\":{\"allow\":[\"_INBOX.>\"]}}\r\n",
	"INFO {\"ldm\":true}\r\nPONG\r\n",
	"LS+ a\r\nLS+ a q 1\r\nLS- a q\r\nLS- a\r\n",
	"LS+ _INBOX.*\r\nLS+ > q 12\r\nLS- _INBOX.*\r\n",
	"LMSG a 0\r\n\r\n",
	"LMSG a 5\r\nhello\r\n",
	"LMSG a reply 5\r\nhello\r\n",
	"LMSG a + reply q1 q2 5\r\nhello\r\n",
	"LMSG a | q1 5\r\nhello\r\n",
	"HMSG a 12 17\r\nNATS/1.0\r\n\r\nhello\r\n",
	"HMSG a reply 12 12\r\nNATS/1.0\r\n\r\n\r\n",
	"HMSG a + reply q 12 17\r\nNATS/1.0\r\n\r\nhello\r\n",
	"LMSG a 5\r\nhello",
	"LMSG a 5\r\nhelloPING\r\n",
	"LMSG a 5",
	"LMSG\r\n",
	"LMSG 5\r\n",
	"LMSG a -1\r\n",
	"LMSG a 1e3\r\n",
	"LMSG a 99999999999999999999\r\n",
	"LMSG a 2147483648\r\n",
	"LMSG a 2000000\r\nabc",
	"HMSG a 5\r\nhello\r\n",
	"HMSG a 9 5\r\nhello\r\n",
	"LMSG a b c d 5\r\nhello\r\n",
	"LMSG a + 5\r\nhello\r\n",
	"LS+\r\n",
	"LS+ a b\r\n",
	"LS+ a b 1 2\r\n",
	"LS- a b 1\r\n",
	"LS+ a..b\r\nLS+ a.>.b\r\nLS+ .\r\n",
	"INFO\r\n",
	"INFO []\r\n",
	"INFO {\"export\":{\"allow\":{}}}\r\n",
	"HTTP/1.1 400 Bad Request\r\n\r\n",
	"\x15\x03\x01\x00\x02\x02\x16",
	"+OK\r\n",
	"MSG a 1 5\r\nhello\r\n",
	"\r\n",
	"\x00",
	" ",
	"LMSG  a   5 \r\nhello\r\n",
}

// newSession returns a session that has logged in and reads from r. Nobody writes what it answers.
func newSession(r io.Reader, l limits) *session {
	c := &Conn{limits: l, config: Config{
		Receive: func(*Message) {}, Changed: func(State) {}, InterestGone: func(string) {},
	}}
	s := &session{conn: c, url: new(url.URL), interest: newInterest(l.maxInterest)}
	s.wake = make(chan struct{}, 1)
	s.ctx, s.abort = context.WithCancelCause(context.Background())
	s.parser = newParser(&untilGivenUp{r, s})
	s.parser.maxPayload = 1 << 20

	return s
}

// untilGivenUp is what a session reads from, until its connection ends.
type untilGivenUp struct {
	io.Reader
	s *session
}

func (u *untilGivenUp) Read(to []byte) (int, error) {
	if err := context.Cause(u.s.ctx); err != nil {
		return 0, err
	}
	return u.Reader.Read(to)
}

// FuzzParser: whatever a server says, frames have the bytes sent, however they are cut into
// packets, and the end is an error of bounded length.
func FuzzParser(f *testing.F) {
	for _, seed := range seeds {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, said []byte) {
		all := func(r io.Reader) (frames []frame, err error) {
			p := newParser(r)
			p.maxPayload = 1 << 20

			for {
				got, err := p.next()
				if err != nil {
					return frames, err
				}

				got.text = bytes.Clone(got.text)
				frames = append(frames, got)
			}
		}

		frames, err := all(bytes.NewReader(said))
		cut, err2 := all(iotest.OneByteReader(bytes.NewReader(said)))
		if !reflect.DeepEqual(frames, cut) || err.Error() != err2.Error() {
			t.Fatalf("%v, %v, and byte by byte %v, %v", frames, err, cut, err2)
		}
		if len(err.Error()) > 1000 {
			t.Fatalf("an error of %d bytes", len(err.Error()))
		}

		rest := said
		for _, got := range frames {
			m := got.message
			if m == nil {
				continue
			}

			body := slices.Concat(m.Header, m.Payload, []byte("\r\n"))
			at := bytes.Index(rest, body)
			if at < 0 || !bytes.Contains(rest[:at], []byte(m.Subject)) ||
				!bytes.Contains(rest[:at], []byte(m.Reply)) {
				t.Fatalf("message %+v was not sent", m)
			}

			rest = rest[at+len(body):]
		}
	})
}

// FuzzRead: whatever a server says after the login, the session ends with an error, and its table
// of interest stays consistent.
func FuzzRead(f *testing.F) {
	for _, seed := range seeds {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, said []byte) {
		l := defaultLimits()
		l.maxInterest = 64 << 10
		s := newSession(bytes.NewReader(said), l)
		defer s.abort(nil)
		s.login = time.NewTimer(time.Hour)
		s.ping(s.loggedIn)

		err := s.read()
		if err == nil || len(s.explain(err).Error()) > 1000 {
			t.Fatalf("ended with %v", err)
		}
		if s.interest.memory < 0 || s.interest.memory > s.interest.limit {
			t.Fatalf("interest is said to take %d bytes", s.interest.memory)
		}

		for _, subject := range []string{"a", "_INBOX.a", "a.b.c"} {
			m := &Message{Subject: subject, Payload: []byte("x")}
			if err := s.publish(m); err != nil && !errors.Is(err, ErrDenied) &&
				!errors.Is(err, ErrTooLarge) && !errors.Is(err, ErrPending) {
				t.Fatal(err)
			}
		}
	})
}

// A message that this side writes is parsed as the same message.
func TestLines(t *testing.T) {
	header := []byte("NATS/1.0\r\nA: b\r\n\r\n")
	for _, m := range []*Message{
		{Subject: "a", Payload: []byte{}},
		{Subject: "a", Payload: []byte("x\r\n")},
		{Subject: "a.b", Reply: "$JS.ACK.x@y", Payload: []byte("x")},
		{Subject: "a", Header: header, Payload: []byte{}},
		{Subject: "a", Reply: "b", Header: header, Payload: []byte("x")},
	} {
		said := slices.Concat(appendLine(nil, m), m.Header, m.Payload, []byte("\r\n"))
		p := newParser(bytes.NewReader(said))
		p.maxPayload = 1 << 20

		got, err := p.next()
		if err != nil || !reflect.DeepEqual(got.message, m) {
			t.Errorf("%q: %+v, %v", said, got.message, err)
		}
	}
}

// endless is a Reader of what next returns for 0, 1, 2 and so on. It ends after limit calls, if
// limit is not 0.
type endless struct {
	next  func(i int) string
	limit int
	i     int
	rest  string
}

func (e *endless) Read(to []byte) (int, error) {
	if e.rest == "" {
		if e.limit > 0 && e.i == e.limit {
			return 0, io.EOF
		}

		e.rest = e.next(e.i)
		e.i++
	}

	n := copy(to, e.rest)
	e.rest = e.rest[n:]
	return n, nil
}

func repeat(text string) io.Reader { return &endless{next: func(int) string { return text }} }

// Sizes and lines that a server only announces, or never ends, are an error, and take little
// memory. The bounds leave room for what other tests left behind.
func TestHostileSizes(t *testing.T) {
	for _, test := range []struct {
		name  string
		said  io.Reader
		want  string // in the error
		bound uint64 // of bytes allocated
	}{
		{"endless line", repeat("x"), `"xxxxxxxx`, 1 << 20},
		{
			"endless message line", io.MultiReader(strings.NewReader("LMSG a "), repeat("q ")),
			`longer than 65536 bytes: "LMSG a q q`, 1 << 20,
		},
		{
			"endless INFO", io.MultiReader(strings.NewReader("INFO {"), repeat(`"a":[`)),
			`"INFO {\"a\":[`, 1 << 20,
		},
		{
			"nested INFO", strings.NewReader("INFO " + strings.Repeat("[", 60_000) + "\r\n"),
			`INFO "[[[`, 4 << 20,
		},
		{
			"huge message", strings.NewReader("LMSG a 2147483647\r\n"),
			`2147483647 bytes, max_payload is 67108864: "a 2147483647"`, 1 << 20,
		},
		{
			"announced message", strings.NewReader("LMSG a 67000000\r\nabc"),
			`within message "a 67000000": unexpected EOF`, 2 << 20,
		},
		{
			"announced header", strings.NewReader("HMSG a 66000000 67000000\r\nabc"),
			`within message "a 66000000`, 2 << 20,
		},
		{"flood of pings", repeat("PING\r\n"), ErrPending.Error(), 32 << 20},
		{
			"flood of pongs",
			&endless{next: func(int) string { return "PONG\r\n" }, limit: 100_000}, "EOF", 4 << 20,
		},
	} {
		l := defaultLimits()
		l.pending = 1 << 20
		s := newSession(test.said, l)
		s.parser.maxPayload = maxMessage

		before := allocated()
		err := s.read()

		got := allocated() - before
		if err == nil || !strings.Contains(err.Error(), test.want) || got > test.bound {
			t.Errorf("%s: %v after %d bytes", test.name, err, got)
		}

		s.abort(nil)
	}
}

// allocated returns how many bytes were allocated, freed or not.
func allocated() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.TotalAlloc
}

// heapInUse returns how many bytes are in use.
func heapInUse() int {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

// The limits of a connection fit together into the memory that it is given, and are no larger than
// their defaults.
func TestLimitsFitMemory(t *testing.T) {
	const defaultPending, defaultInterest = 64 << 20, 256 << 20
	for memory, want := range map[int][2]int{ // pending and interest
		0:         {defaultPending, defaultInterest},
		10 << 20:  {5 << 20, 5 << 20},
		200 << 20: {defaultPending, 200<<20 - defaultPending},
		1 << 40:   {defaultPending, defaultInterest},
	} {
		c, err := New(Config{URLs: []string{"x"}, Memory: memory})
		if err != nil {
			t.Fatal(err)
		}
		if got := [2]int{c.limits.pending, c.limits.maxInterest}; got != want {
			t.Errorf("%d bytes: %d to be written and %d of interest, want %d", memory, got[0],
				got[1], want)
		}
	}
}

// However many subscriptions a server tells of, the table takes no more than its limit, and once it
// is full every subject counts as subscribed to. Once all are gone, the table is empty.
func TestHostileInterest(t *testing.T) {
	const (
		limit = 512 << 10
		noise = 64 << 10 // of the heap
		n     = 10_000   // subscriptions, a fifth of that if they are long
	)
	long := strings.Repeat(" ", 60_000)

	for name, line := range map[string]func(i int) string{
		"inboxes":   func(i int) string { return fmt.Sprintf("LS+ _INBOX.%d\r\n", i) },
		"wildcards": func(i int) string { return fmt.Sprintf("LS+ _INBOX.%d.*\r\n", i) },
		"tokens": func(i int) string {
			return fmt.Sprintf("LS+ %d%s\r\n", i, strings.Repeat(".a", 300))
		},
		"blanks": func(i int) string {
			return fmt.Sprintf("LS+ %d%s\r\n", i%2_000, long[:min(len(long), i)])
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := defaultLimits()
			l.maxInterest = limit
			count := n

			if name == "tokens" || name == "blanks" {
				count = n / 5
			}

			s := newSession(&endless{next: line, limit: count}, l)
			before := heapInUse()
			if err := s.read(); !errors.Is(err, io.EOF) {
				t.Fatal(err)
			}

			if took := heapInUse() - before; took > limit+noise {
				t.Errorf("the table takes %d bytes, and says %d", took, s.interest.memory)
			}
			if full := name != "blanks"; s.interest.has("never.subscribed") != full {
				t.Errorf("%d subscriptions are missed", s.interest.missed)
			}

			if err := s.publish(&Message{Subject: "_INBOX.a"}); err != nil {
				t.Error(err)
			}

			gone := func(i int) string {
				words := strings.Fields(line(i))
				return "LS- " + strings.Join(words[1:min(len(words), 3)], " ") + "\r\n"
			}

			s.parser = newParser(&endless{next: gone, limit: count})
			if err := s.read(); !errors.Is(err, io.EOF) {
				t.Fatal(err)
			}
			if s.interest.missed+s.interest.memory != 0 || s.interest.has("_INBOX.a") {
				t.Errorf("in the end %d are missed, and the table takes %d bytes",
					s.interest.missed, s.interest.memory)
			}
		})
	}
}

// The table agrees with a list of subscriptions about who is subscribed and which subjects nobody
// subscribes to any more, and is empty in the end.
func TestInterestRandom(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	pick := func(from ...string) string { return from[random.IntN(len(from))] }

	subject := func(tokens ...string) string {
		var parts []string
		for range 1 + random.IntN(3) {
			parts = append(parts, pick(tokens...))
		}

		return strings.Join(parts, ".")
	}

	table := newInterest(1 << 20)
	list := map[string]bool{}

	for range 2_000 {
		s := subject("a", "b", "*")
		if random.IntN(3) == 0 {
			s += ".>"
		}

		if random.IntN(2) == 0 {
			table.add(s)
			list[s] = true
		} else {
			was := list[s]
			delete(list, s)

			gone := table.remove(s)
			if want := was && !strings.ContainsAny(s, "*>") && !table.has(s); gone != want {
				t.Fatalf("%v gone: %t", s, gone)
			}
		}

		asked, has := subject("a", "b", "c"), false
		for s := range list {
			has = has || server.SubjectMatchesFilter(asked, s)
		}
		if table.has(asked) != has {
			t.Fatalf("%s: %t instead of %t with %v", asked, table.has(asked), has, list)
		}
	}

	for s := range list {
		table.remove(s)
	}
	if table.memory != 0 || table.tree.Count() != 0 || len(table.names) != 0 {
		t.Errorf("an empty table says that it takes %d bytes", table.memory)
	}
}

// A denied subject may not be published, whatever allows it. An empty list allows everything.
func TestPermissions(t *testing.T) {
	list := func(subjects ...string) patterns {
		var p patterns
		text, err := json.Marshal(subjects)
		if err = errors.Join(err, p.UnmarshalJSON(text)); err != nil {
			t.Fatal(err)
		}

		return p
	}

	p := &permissions{
		Allow: list("_INBOX.>", "a.*", "$JS.pq.API.CONSUMER.>", "q group"),
		Deny:  list("_INBOX.secret.>"),
	}

	for subject, want := range map[string]bool{
		"_INBOX.a":                 true,
		"_INBOX.secret.a":          false,
		"a.b":                      true,
		"a.b.c":                    false,
		"b":                        false,
		"q":                        false,
		"_R_.x":                    true,
		"_GR_.c.s._INBOX.a":        true,
		"_GR_.c.s._INBOX.secret.a": false,
		"_GR_.c.s.b":               false,
		"_GR_.b":                   false,
	} {
		if p.publish(subject) != want {
			t.Errorf("%s: not %t", subject, want)
		}
	}

	for subject, want := range map[string]bool{
		"$JS.pq.API.>": true,
		"$JS.ACK.pq.>": false,
		"a.b":          true,
		"b":            false,
	} {
		if p.subscribe(subject) != want {
			t.Errorf("%s: not %t", subject, want)
		}
	}

	none := &permissions{Deny: list("x")}
	if !none.publish("a") || none.publish("x") || !none.subscribe("a") {
		t.Error("an empty list does not allow everything")
	}
}
