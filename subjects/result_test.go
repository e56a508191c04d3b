package subjects

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

// A result request names a job by an id or by a message id, and is read as it was written.
func TestParseResultOptions(t *testing.T) {
	for payload, want := range map[string]ResultOptions{
		`{"id":"FQEU"}`:                                 {ID: "FQEU"},
		`{"id":""}`:                                     {},
		`{"msg_id":"invoice 17"}`:                       {MsgID: "invoice 17"},
		`{"id":"FQEU","expires":"1ms"}`:                 {ID: "FQEU", Expires: time.Millisecond},
		`{"msg_id":"m","expires":"1h0m0s"}`:             {MsgID: "m", Expires: time.Hour},
		`{"id":"FQEU","frames":true}`:                   {ID: "FQEU", Frames: true},
		`{"msg_id":"` + strings.Repeat("x", 512) + `"}`: {MsgID: strings.Repeat("x", 512)},
	} {
		got, err := ParseResultOptions([]byte(payload))
		if err != nil || got != want || string(got.Encode()) != payload {
			t.Errorf("%s: %+v, %v, which is written %s", payload, got, err, got.Encode())
		}
	}

	for payload, text := range map[string]string{
		``:                                  "want a JSON object",
		`{}`:                                `no id: want {"id":"..."}`,
		`{"id":"a","msg_id":"b"}`:           "id and msg_id: want one of them",
		`{"msg_id":""}`:                     "msg_id: 0 bytes: want 1 to 512",
		`{"id":5}`:                          "id",
		`{"id":null}`:                       "null",
		`{"Id":"a"}`:                        "Id",
		`{"id":"a","id":"a"}`:               "id",
		`{"id":"a","wait":"5s"}`:            "wait",
		`{"expires":"5s"}`:                  `no id`,
		`{"id":"a","expires":"999us"}`:      "expires: 999us: want 1ms to 1h",
		`{"id":"a","expires":"1h0m0.001s"}`: "want 1ms to 1h",
		`{"id":"a","expires":"-1s"}`:        "want 1ms to 1h",
		`{"id":"a","expires":5}`:            "expires",
		`{"ids":["a"]}`:                     "ids",
		`{"id":"a","frames":1}`:             "frames",
		`{"id":"a"} ` + "\x00":              "",
		`{"msg_id":"` + strings.Repeat("x", 513) + `"}`: "msg_id: 513 bytes: want 1 to 512",
	} {
		got, err := ParseResultOptions([]byte(payload))
		if err == nil || got != (ResultOptions{}) || !strings.Contains(err.Error(), text) {
			t.Errorf("%s: %+v, %v: want it to say %q", payload, got, err, text)
			continue
		}
		WantSendable(t, err, ErrOptions)
	}
}

// exampleJobs returns what a reply says of jobs in each state.
func exampleJobs() []JobInfo {
	at := func(second int) time.Time {
		return time.Date(2026, 11, 27, 5, 0, second, 1000, time.UTC)
	}
	job := ItemInfo{ID: "FQEU", Priority: -5, PushedAt: at(0)}
	joiner := job
	joiner.Join = time.Hour
	dead := job
	dead.Place, dead.FoundIn = "FQEV", "jobs-dead"
	dead.DeadLetter = &DeadLetter{Queue: "jobs", Reason: "max_deliver", At: at(9), Deliveries: 3}
	return []JobInfo{
		{ItemInfo: job, State: StateReady, Deliveries: 2},
		{ItemInfo: job, State: StateDelayed, Due: at(1), Reason: "no ink"},
		{ItemInfo: joiner, State: StateDelayed, Due: at(1)},
		{
			ItemInfo: job, State: StateLeased, Due: at(2), LeasedAt: at(1), Holder: "w@h 7",
			Deliveries: 1, Progress: []byte("half\x00\xff"),
		},
		{ItemInfo: job, State: StateDone, FinishedAt: at(3), KeptUntil: at(59), Deliveries: 1},
		{
			ItemInfo: job, State: StateDone, LeasedAt: at(1), FinishedAt: at(3), KeptUntil: at(59),
			HasResult: true, Deliveries: 1,
		},
		{
			ItemInfo: job, State: StateDone, LeasedAt: at(1), FinishedAt: at(3), KeptUntil: at(59),
			HasResult: true, ResultSize: 12, ContentType: "text/plain", Holder: "w", Deliveries: 1,
		},
		{ItemInfo: dead, State: StateDead},
	}
}

// What a reply says of a job is read as it was written, in either kind of queue.
func TestJobInfo(t *testing.T) {
	for _, want := range exampleJobs() {
		if got, err := ParseJobInfo(want.Headers(Priority)); err != nil ||
			!reflect.DeepEqual(got, want) {
			t.Errorf("%+v is read as %+v, %v", want, got, err)
		}

		h := want.Headers(FIFO)
		if _, given := h[HeaderPriority]; given {
			t.Error("a job of a FIFO queue has a priority")
		}
	}
}

// A header that is wrong counts as absent, and the error names it.
func TestBadJobInfo(t *testing.T) {
	for name, value := range map[string]string{
		HeaderPushedAt: "today", HeaderDue: "soon", HeaderLeaseUntil: "2026", HeaderLeasedAt: "x",
		HeaderFinishedAt: "2026-11-27T05:00:00Z", HeaderKeptUntil: "never",
		HeaderDeliveries: "many", HeaderResultSize: "-", HeaderProgress: "%", HeaderPriority: "x",
		HeaderDeadAt: "x",
	} {
		j, err := ParseJobInfo(map[string][]string{name: {value}})
		if err == nil || !strings.Contains(err.Error(), name) || !reflect.ValueOf(j).IsZero() {
			t.Errorf("%s: %s: %+v, %v", name, value, j, err)
		}
	}
}

// FuzzJobInfo: any headers can be read, and those of a reply are read as they were written.
func FuzzJobInfo(f *testing.F) {
	for _, j := range exampleJobs() {
		h := j.Headers(Priority)
		for _, name := range slices.Sorted(maps.Keys(h)) {
			f.Add(name, h[name][0])
		}
	}

	f.Fuzz(func(t *testing.T, name, value string) {
		j, err := ParseJobInfo(map[string][]string{name: {value}})
		if err != nil && !strings.Contains(err.Error(), "header "+name) {
			t.Fatalf("%q: %q: the error %v does not name it", name, value, err)
		}
		if _, err := ParseJobInfo(j.Headers(Priority)); err != nil {
			t.Fatalf("%q: %q: written as %v: %v", name, value, j.Headers(Priority), err)
		}
	})
}
