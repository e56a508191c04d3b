package jetstream

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/subjects"
)

// Every queue is a stream, even before its first push, and STREAM.INFO shows its items, settings
// and consumers. The queues of one name are streams of two domains.
func TestStreamInfo(t *testing.T) {
	s := newSystem(t)
	r := s.succeeds("pq.API.STREAM.INFO.jobs", "")
	same(t, "type", r.Type, "io.nats.jetstream.api.v1.stream_info_response")
	same(t, "messages", r.State.Msgs, 0)
	same(t, "first", r.State.FirstSeq, 0)
	same(t, "consumers", r.State.Consumers, 2)
	same(t, "domain", r.Domain, "pq")

	for name, want := range map[string]string{
		"name":             `"jobs"`,
		"subjects":         `["pq.jobs.push"]`,
		"retention":        `"workqueue"`,
		"max_msgs":         "-1",
		"duplicate_window": "120000000000", // ns: two minutes
	} {
		same(t, name, member(t, r.Config, name), want)
	}

	s.push("jobs", "a", "b", "c")
	s.do(subjects.Priority, "jobs", fdbpq.Op{Kind: fdbpq.OpLease})
	s.configure("jobs", func(set *fdbpq.Settings) {
		set.MaxItems, set.Discard, set.TTL = 100, "old", time.Hour
	})

	r = s.succeeds("pq.API.STREAM.INFO.jobs", `{"subjects_filter":"pq.*.push"}`)
	same(t, "messages", r.State.Msgs, 3)
	same(t, "last", r.State.LastSeq, 3)
	same(t, "subjects", fmt.Sprint(r.State.Subjects), "map[pq.jobs.push:3]")
	if r.State.FirstTime.IsZero() {
		t.Error("there is no first_ts")
	}

	for name, want := range map[string]string{
		"max_msgs": "100",
		"discard":  `"old"`,
		"max_age":  "3600000000000",
	} {
		same(t, name, member(t, r.Config, name), want)
	}

	r = s.succeeds("q.API.STREAM.INFO.jobs", "")
	same(t, "subjects", member(t, r.Config, "subjects"), `["q.jobs.push"]`)
	same(t, "consumers of a FIFO queue", r.State.Consumers, 1)
}

// STREAM.CREATE and STREAM.UPDATE succeed if they describe the queue as it is, by any of its
// members. Everything else is refused with the member that differs, and changes nothing.
func TestStreamCreate(t *testing.T) {
	s := newSystem(t)
	s.configure("jobs", func(set *fdbpq.Settings) { set.MaxItems = 100 })
	shown := string(s.succeeds("pq.API.STREAM.INFO.jobs", "").Config)

	for _, config := range []string{
		`{"name":"jobs","subjects":["pq.jobs.push"]}`,
		`{"name":"jobs","subjects":["pq.jobs.push"],"retention":"workqueue","storage":"file",` +
			`"num_replicas":1,"max_msgs":-1,"max_age":0}`,
		`{"name":"jobs","subjects":["pq.jobs.push"],"retention":"limits","discard":"old",` +
			`"max_msgs":100,"pedantic":true}`,
		`{"name":"jobs","subjects":["pq.jobs.push"],"allow_direct":true}`,
		shown,
	} {
		same(t, "type", s.succeeds("pq.API.STREAM.CREATE.jobs", config).Type,
			"io.nats.jetstream.api.v1.stream_create_response")
		same(t, "type", s.succeeds("pq.API.STREAM.UPDATE.jobs", config).Type,
			"io.nats.jetstream.api.v1.stream_update_response")
	}

	for _, wrong := range []struct {
		config string
		code   int
		part   string
	}{
		{``, errNameMismatch, "does not match"},
		{`{"name":"jobs"}`, errStreamConfig, `["pq.jobs.push"]`},
		{
			`{"name":"jobs","subjects":["pq.jobs.push","pq.more.push"]}`, errStreamConfig,
			`["pq.jobs.push"]`,
		},
		{
			`{"name":"jobs","subjects":["pq.jobs.push"],"retention":"interest"}`, errStreamExists,
			"retention",
		},
		{`{"name":"jobs","subjects":["pq.jobs.push"],"max_msgs":5}`, errStreamExists, "max_msgs"},
		{
			`{"name":"jobs","subjects":["pq.jobs.push"],"num_replicas":3}`, errStreamExists,
			"num_replicas",
		},
		{
			`{"name":"jobs","subjects":["pq.jobs.push"],"mirror":{"name":"x"}}`, errStreamExists,
			"mirror",
		},
		{
			`{"name":"jobs","subjects":["pq.jobs.push"],"metadata":{"a":"b"}}`, errStreamExists,
			"metadata",
		},
		{`{"name":"jobs","subjects":["pq.jobs.push"],"unheard_of":1}`, errJSON, "unheard_of"},
	} {
		s.fails("pq.API.STREAM.CREATE.jobs", wrong.config, apiCode(wrong.code), wrong.part)

		if wrong.code == errStreamExists { // an update is of a stream that exists
			wrong.code = errStreamConfig
		}
		s.fails("pq.API.STREAM.UPDATE.jobs", wrong.config, apiCode(wrong.code), wrong.part)
	}
	same(t, "the configuration", string(s.succeeds("pq.API.STREAM.INFO.jobs", "").Config), shown)
}

// Names and lists come in pages, from an offset to the total. A subject, also with wildcards, finds
// the streams that it matches.
func TestStreamPages(t *testing.T) {
	s := newSystem(t)
	same(t, "names of no streams", string(s.succeeds("pq.API.STREAM.NAMES", "").text),
		`{"type":"io.nats.jetstream.api.v1.stream_names_response",`+
			`"total":0,"offset":0,"limit":1024,"streams":[]}`)

	const n = 2*maxStreams + 5 // three pages of STREAM.LIST, and one of STREAM.NAMES
	for i := range n {
		s.push(fmt.Sprintf("queue-%03d", i), "a")
	}

	r := s.succeeds("pq.API.STREAM.NAMES", "{}")
	same(t, "names", length(r.Streams), n)
	same(t, "total", r.Total, n)
	same(t, "names from an offset",
		length(s.succeeds("pq.API.STREAM.NAMES", `{"offset":100}`).Streams), n-100)
	same(t, "names from a negative offset",
		length(s.succeeds("pq.API.STREAM.NAMES", `{"offset":-1}`).Streams), n)
	same(t, "names from an offset beyond",
		s.succeeds("pq.API.STREAM.NAMES", `{"offset":9999}`).Offset, n)

	seen := 0
	for pages := 1; ; pages++ {
		r := s.succeeds("pq.API.STREAM.LIST", fmt.Sprintf(`{"offset":%d}`, seen))
		same(t, "limit", r.Limit, maxStreams)

		if seen += length(r.Streams); seen >= r.Total || length(r.Streams) == 0 {
			same(t, "pages", pages, 3)
			break
		}
	}
	same(t, "streams", seen, n)

	// A queue without items is a stream too, if it is named.
	for filter, want := range map[string]int{
		"pq.queue-003.push":    1,
		"pq.unused.push":       1,
		"pq.*.push":            n,
		">":                    n,
		"pq.queue-003.>":       1,
		"pq.*":                 0,
		"pq.*.push.*":          0,
		"q.queue-003.push":     0,
		"orders":               0,
		"pq.queue-003.pop.min": 0,
	} {
		r := s.succeeds("pq.API.STREAM.NAMES", fmt.Sprintf(`{"subject":%q}`, filter))
		same(t, "names for "+filter, length(r.Streams), want)
		same(t, "total for "+filter, r.Total, want)
	}
}

// A purge removes all items, leased ones included. One that would keep some is refused.
func TestStreamPurge(t *testing.T) {
	s := newSystem(t)
	s.push("jobs", "a", "b", "c")
	s.do(subjects.Priority, "jobs", fdbpq.Op{Kind: fdbpq.OpLease})

	s.fails("pq.API.STREAM.PURGE.jobs", `{"keep":1}`, errBadRequest, "no sequence numbers")
	s.fails("pq.API.STREAM.PURGE.jobs", `{"seq":2}`, errBadRequest, "no sequence numbers")
	s.fails("pq.API.STREAM.PURGE.jobs", `{"seq":-2}`, errJSON, "invalid JSON")
	same(t, "purged of another subject",
		s.succeeds("pq.API.STREAM.PURGE.jobs", `{"filter":"orders"}`).Purged, 0)

	r := s.succeeds("pq.API.STREAM.PURGE.jobs", `{"filter":"pq.jobs.push"}`)
	same(t, "purged", r.Purged, 3)
	same(t, "success", r.Success, true)
	same(t, "left", s.succeeds("pq.API.STREAM.INFO.jobs", "").State.Msgs, 0)
}

// A page of names reads no more of the list than it needs, and says that there is more.
func TestStreamPageOfMany(t *testing.T) {
	asked := 0
	s := newSystem(t, func(c *Config) {
		c.List = func(
			_ context.Context, _ subjects.Kind, o subjects.ListOptions,
		) (list subjects.QueueList, err error) {
			asked++
			for i := range o.Limit {
				list.Queues = append(list.Queues,
					subjects.QueueCounts{Queue: fmt.Sprintf("%s%04d", o.After, i)})
			}

			list.Next = &list.Queues[len(list.Queues)-1].Queue
			return list, nil
		}
	})

	r := s.succeeds("pq.API.STREAM.NAMES", "")
	same(t, "names", length(r.Streams), maxNames)
	same(t, "total", r.Total, maxNames+1) // at least one more
	same(t, "lists", asked, 2)
}
