package bridge_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/micro"

	"github.com/pqbridge/pqbridge/bridge"
	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/testenv"
)

func TestDiscovery(t *testing.T) {
	e := testenv.New(t, testenv.Options{Bridge: func(o *bridge.Options) { o.Version = "1.2.3" }})
	var ping micro.Ping
	discover(t, e, "$SRV.PING", &ping)
	if ping.Type != micro.PingResponseType || ping.Name != "pqbridge" || ping.Version != "1.2.3" || ping.ID == "" || ping.Metadata == nil {
		t.Errorf("ping %+v", ping)
	}
	push(t, e, "pq.jobs.push", nil, "x")
	ok(t, e, "pq.jobs.pop.min", nil, "")
	refused(t, e, 404, "pq.jobs.pop.min", nil, nil)

	for _, scope := range []string{"", ".pqbridge", ".pqbridge." + ping.ID} {
		var again micro.Ping
		discover(t, e, "$SRV.PING"+scope, &again)
		if again.ID != ping.ID {
			t.Errorf("ping%s from %s, want %s", scope, again.ID, ping.ID)
		}
		var info micro.Info
		discover(t, e, "$SRV.INFO"+scope, &info)
		if info.Type != micro.InfoResponseType || info.ID != ping.ID || len(info.Endpoints) != len(e.Grammar.Endpoints()) {
			t.Errorf("info%s %+v", scope, info)
		}
		if at, err := time.Parse(subjects.TimeLayout, info.Metadata[subjects.MetadataTime]); err != nil || time.Since(at).Abs() > testenv.Patience {
			t.Errorf("info%s: the time is %v, %v", scope, at, err)
		}
		if store := info.Metadata[subjects.MetadataStore]; store == "" || store != ping.Metadata[subjects.MetadataStore] {
			t.Errorf("info%s: the store is %q", scope, store)
		}
		var stats micro.Stats
		discover(t, e, "$SRV.STATS"+scope, &stats)
		if stats.Type != micro.StatsResponseType || stats.ID != ping.ID || stats.Started.IsZero() {
			t.Errorf("stats%s %+v", scope, stats)
		}
		checkStats(t, stats)
	}
}

func checkStats(t *testing.T, stats micro.Stats) {
	t.Helper()
	seen := 0
	for _, s := range stats.Endpoints {
		requests, errors := 0, 0
		switch s.Name {
		case "push":
			requests = 1
		case "pop-min":
			requests, errors = 2, 1
			if s.Subject != "pq.*.pop.min" || !strings.Contains(s.LastError, "empty") {
				t.Errorf("%+v", s)
			}
		default:
			continue
		}
		seen++
		if s.NumRequests != requests || s.NumErrors != errors || s.QueueGroup != "pq" ||
			s.ProcessingTime <= 0 || s.AverageProcessingTime > s.ProcessingTime {
			t.Errorf("%+v: want %d requests and %d errors", s, requests, errors)
		}
	}
	if seen != 2 {
		t.Errorf("the statistics have %d of the endpoints used", seen)
	}
}

func discover(t *testing.T, e *testenv.Env, subject string, into any) {
	t.Helper()
	reply := e.Request(subject, nil, nil)
	if err := json.Unmarshal(reply.Data, into); err != nil {
		t.Fatalf("%s: %q: %v", subject, reply.Data, err)
	}
}
