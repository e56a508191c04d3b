package deploy

import (
	"context"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/promqltest"
	"github.com/prometheus/prometheus/template"
)

// alertRules returns the alerts of the file by their names.
func alertRules(t *testing.T) map[string]rulefmt.Rule {
	t.Helper()
	groups, problems := rulefmt.Parse(read(t, root, "deploy", "prometheus", "rules.yaml"), false,
		model.UTF8Validation)
	if len(problems) > 0 || len(groups.Groups) != 1 {
		t.Fatalf("%v, %v: want one group", groups, problems)
	}

	found := map[string]rulefmt.Rule{}
	for _, rule := range groups.Groups[0].Rules {
		found[rule.Alert] = rule
	}

	return found
}

// A scrape is a minute after the one before, and Prometheus looks at the rules as often as it does
// by default.
const (
	scrapeEvery = time.Minute
	lookEvery   = 15 * time.Second
)

// fires reports whether an alert fires within some time, given series in the notation of promtool
// with a value for each minute. It fires once its expression has had a result for as long as its
// for says, without a gap.
func fires(t *testing.T, rule rulefmt.Rule, series string, within time.Duration) bool {
	t.Helper()
	storage := promqltest.LoadedStorage(t, fmt.Sprintf("load %s\n\t%s\n",
		model.Duration(scrapeEvery), strings.ReplaceAll(strings.TrimSpace(series), "\n", "\n\t")))
	defer storage.Close()
	engine := promqltest.NewTestEngine(t, false, 0, promqltest.DefaultMaxSamplesPerQuery)
	query, err := engine.NewRangeQuery(context.Background(), storage, nil, rule.Expr,
		time.Unix(0, 0), time.Unix(0, 0).Add(within), lookEvery)
	must(t, err)
	defer query.Close()
	result := query.Exec(context.Background())
	matrix, err := result.Matrix()
	must(t, err)

	for _, s := range matrix {
		since := s.Floats[0].T
		for i, point := range s.Floats {
			if i > 0 && point.T-s.Floats[i-1].T > lookEvery.Milliseconds() {
				since = point.T
			}
			if point.T-since >= time.Duration(rule.For).Milliseconds() {
				return true
			}
		}
	}

	return false
}

// situation is what Prometheus has scraped.
type situation struct {
	name   string
	series string
	fires  bool
}

// healthy is a bridge that does its work.
const healthy = `
	up{job="pq",instance="a"} 1x180
	pq_serving{job="pq",instance="a"} 1x180`

// gone begins the series of the first alert while it fires.
const gone = `ALERTS{alertname="PqBridgeGone",alertstate="firing",job="pq"`

// situations has for each alert when it must fire, and when it must not, within three hours.
var situations = map[string][]situation{
	"PqBridgeGone": {
		{"a bridge that runs", healthy, false},
		{"a bridge that ends, and stays away", `
			up{job="pq",instance="a"} 1x60 0x120
			pq_serving{job="pq",instance="a"} 1x60 _x120`, true},
		{"one of two that ends", healthy + `
			up{job="pq",instance="b"} 1x60 0x120
			pq_serving{job="pq",instance="b"} 1x60 _x120`, true},
		{"a restart of a minute", `
			up{job="pq",instance="a"} 1x60 0 1x120
			pq_serving{job="pq",instance="a"} 1x60 _ 1x120`, false},
		{"another program that ends", healthy + `
			up{job="pq",instance="database"} 1x60 0x120
			up{job="nats",instance="a"} 1x60 0x120`, false},
		{"one of two that was removed on purpose", healthy + `
			up{job="pq",instance="b"} 1x60
			pq_serving{job="pq",instance="b"} 1x60`, false},
		{"one of two that ended the day before yesterday", healthy + `
			up{job="pq",instance="b"} 0x180
			` + gone + `,instance="b"} 1x180`, true},
		{"one that was away, and is back", healthy + `
			` + gone + `,instance="a"} 1x20`, false},
		{"another alert of another program", healthy + `
			up{job="pq",instance="database"} 0x180
			ALERTS{alertname="Gone",alertstate="firing",job="pq",` +
			`instance="database"} 1x180`, false},
		{"nothing is scraped at all", `up{job="nats",instance="a"} 1x180`, true},
		{"the last bridge has left the targets", `
			up{job="pq",instance="a"} 1x60
			pq_serving{job="pq",instance="a"} 1x60`, true},
	},
	"PqStoreUnavailable": {
		{"one 503", `pq_errors_total{operation="push",code="503"} 0x60 1x120`, false},
		{
			"three at once, as when a store is moved",
			`pq_errors_total{operation="push",code="503"} 0x60 3x120`,
			false,
		},
		{"503 for minutes", `pq_errors_total{operation="push",code="503"} 0x60 0+1x120`, true},
		{"404 for minutes", `pq_errors_total{operation="pop-min",code="404"} 0+9x180`, false},
	},
	"PqOverloaded": {
		{"two 429", `pq_errors_total{operation="push",code="429"} 0x60 1 1 1 1 2x115`, false},
		{
			"a burst of a minute",
			`pq_errors_total{operation="push",code="429"} 0x60 5000x120`,
			false,
		},
		{"429 for minutes", `pq_errors_total{operation="push",code="429"} 0x60 0+10x120`, true},
	},
	"PqFault": {
		{"one 500", `pq_errors_total{operation="push",code="500"} 0x60 1x120`, true},
		{"one 400", `
			pq_errors_total{operation="push",code="500"} 0x180
			pq_errors_total{operation="push",code="400"} 0x60 1x120`, false},
	},
	"PqDisconnected": {
		{"connected", `pq_nats_connected 1x180`, false},
		{"a blink", `pq_nats_connected 1x60 0 1x119`, false},
		{"away", `pq_nats_connected 1x60 0x120`, true},
		{"no leaf node connection", `
			pq_nats_connected 1x180
			pq_jetstream_connected 1x60 0x120`, true},
	},
	"PqNotServing": {
		{"it is ready", `pq_ready 1x180`, false},
		{
			"a write has failed, and the next probe finds that writes are possible again",
			`pq_ready 1x60 0 1x119`,
			false,
		},
		{"it is not ready, although it subscribes and is connected", `
			pq_serving 1x180
			pq_nats_connected 1x180
			pq_ready 1x60 0x120`, true},
	},
	"PqSourceStopped": {
		{"it draws", `pq_source_stopped{kind="priority",queue="jobs"} 0x180`, false},
		{
			"it waits for a moment",
			`pq_source_stopped{kind="priority",queue="jobs"} 0x60 1x3 0x117`,
			false,
		},
		{"it has stopped", `pq_source_stopped{kind="priority",queue="jobs"} 0x60 1x120`, true},
	},
	"PqLost": {
		{"nothing is lost", `
			pq_reply_failures_total 7x180
			pq_dropped_total 0x180
			pq_lost_items_total 0x180`, false},
		{"one item", `
			pq_reply_failures_total 7x180
			pq_dropped_total 0x180
			pq_lost_items_total 0x60 1x120`, true},
	},
	"PqDiscarded": {{"none", `pq_discarded_total 5x180`, false},
		{"one", `pq_discarded_total 5x60 6x120`, true}},
	"PqDeadLetters": {{"none", `pq_dead_total 5x180`, false},
		{"one", `pq_dead_total 5x60 6x120`, true}},
	"PqBacklog": {
		{"many", `pq_queue_length{kind="priority",queue="jobs"} 100000x180`, false},
		{
			"too many for a moment",
			`pq_queue_length{kind="priority",queue="jobs"} 1x60 200000x5 1x115`,
			false,
		},
		{"too many, at one bridge and then at another", `
			pq_queue_length{kind="priority",queue="jobs",instance="a"} 1x60 200000x6
			pq_queue_length{kind="priority",queue="jobs",instance="b"} _x67 200000x113`, true},
	},
	"PqOldItems": {
		{"young", `pq_queue_oldest_seconds{kind="priority",queue="jobs"} 900x180`, false},
		{"old", `pq_queue_oldest_seconds{kind="priority",queue="jobs"} 0+60x180`, true},
		{"old, and not paused", `
			pq_queue_oldest_seconds{kind="priority",queue="jobs"} 0+60x180
			pq_queue_paused{kind="priority",queue="jobs"} 0x180
			pq_queue_paused{kind="fifo",queue="jobs"} 1x180`, true},
		{"paused, and shown by another bridge in between", `
			pq_queue_oldest_seconds{kind="priority",queue="jobs",instance="a"} 0+60x180
			pq_queue_paused{kind="priority",queue="jobs",instance="a"} 1x180
			pq_queue_paused{kind="priority",queue="jobs",instance="b"} _x60 1x10`, false},
		{"paused until an hour before", `
			pq_queue_oldest_seconds{kind="priority",queue="jobs"} 0+60x180
			pq_queue_paused{kind="priority",queue="jobs"} 1x120 0x60`, true},
		{
			"dead letters",
			`pq_queue_oldest_seconds{kind="priority",queue="jobs-dead"} 0+60x180`,
			false,
		},
	},
	"PqRedeliveries": {
		{"few", `
			pq_redeliveries_total 0+1x180
			pq_deliveries_total 0+10x180`, false},
		{"one, in a queue with little to do", `
			pq_redeliveries_total 0x60 1x120
			pq_deliveries_total 0x60 2x120`, false},
		{"many", `
			pq_redeliveries_total 0+2x180
			pq_deliveries_total 0+10x180`, true},
	},
	"PqFiguresMissing": {
		{"read", `pq_queue_length_up 1x180`, false},
		{"missing for a while", `pq_queue_length_up 1x60 0x10 1x110`, false},
		{"missing", `pq_queue_length_up 1x60 0x120`, true},
	},
	"PqDiskFilling": {
		{"room, and little is added", `
			pq_store_free_bytes 100000000000-10000000x180
			pq_store_reserve_bytes 268435456x180`, false},
		{"full in two hours", `
			pq_store_free_bytes 50000000000-150000000x180
			pq_store_reserve_bytes 268435456x180`, true},
		{"nearly full, and standing still", `
			pq_store_free_bytes 400000000x180
			pq_store_reserve_bytes 268435456x180`, true},
		{"a compaction that takes and returns room", `
			pq_store_free_bytes 50000000000x60 50000000000-400000000x5 50000000000x115
			pq_store_reserve_bytes 268435456x180`, false},
		{"FoundationDB", healthy, false},
	},
	"PqBackupOld": {
		{"never made", healthy, false},
		{
			"made an hour before the start",
			`pq_store_last_backup_timestamp_seconds -3600x180`,
			false,
		},
		{
			"made 48 hours before, and not again",
			`pq_store_last_backup_timestamp_seconds -172800x180`,
			true,
		},
		{
			"made 47 hours before, and again",
			`pq_store_last_backup_timestamp_seconds -169200x30 1800x150`,
			false,
		},
	},
}

// Each alert fires when it has to, and only then: one failed request, or two, are no alert that
// somebody is called for.
func TestAlertsFire(t *testing.T) {
	alerts := alertRules(t)
	have, tested := slices.Sorted(maps.Keys(alerts)), slices.Sorted(maps.Keys(situations))
	if !slices.Equal(have, tested) {
		t.Errorf("the rules are %v, and the tests are of %v", have, tested)
	}

	for alert, cases := range situations {
		rule, found := alerts[alert]
		if !found {
			continue
		}

		both := map[bool]bool{}
		for _, s := range cases {
			if both[s.fires] = true; fires(t, rule, s.series, 3*time.Hour) != s.fires {
				t.Errorf("%s, %s: fires %v, want %v", alert, s.name, !s.fires, s.fires)
			}
		}
		if len(both) != 2 {
			t.Errorf("%s: want a situation in which it fires, and one in which it does not", alert)
		}
	}
}

// An alert about several queues or bridges names them in its text.
func TestAlertsNameQueuesAndBridges(t *testing.T) {
	const series = `load 1m
	pq_queue_dead_total{kind="priority",queue="jobs",instance="a"} 0x5 3x10
	pq_queue_dead_total{kind="fifo",queue="mails",instance="a"} 7x15
	pq_errors_total{operation="push",code="503",instance="b"} 0+1x15
	pq_errors_total{operation="pop",code="503",instance="a"} 9x15
	pq_errors_total{operation="push",code="429",instance="b"} 0+1x15
	pq_refused_total{reason="max_items",instance="b"} 0+1x15
	pq_refused_total{reason="rate",instance="b"} 4x15
`

	storage := promqltest.LoadedStorage(t, series)
	defer storage.Close()
	engine := promqltest.NewTestEngine(t, false, 0, promqltest.DefaultMaxSamplesPerQuery)
	now := time.Unix(0, 0).Add(15 * time.Minute)

	ask := func(ctx context.Context, expr string, at time.Time) (promql.Vector, error) {
		query, err := engine.NewInstantQuery(ctx, storage, nil, expr, at)
		must(t, err)
		defer query.Close()
		found, err := query.Exec(ctx).Vector()

		return slices.Clone(found), err
	}

	for alert, want := range map[string]string{
		"PqDeadLetters":      "They are from: jobs (priority)",
		"PqStoreUnavailable": "Bridges: b",
		"PqOverloaded":       "limits of queues: b max_items",
	} {
		text := alertRules(t)[alert].Annotations["summary"]
		expander := template.NewTemplateExpander(t.Context(), text, alert, nil,
			model.TimeFromUnix(now.Unix()), ask, &url.URL{}, nil)

		got, err := expander.Expand()
		if err != nil || !strings.HasSuffix(strings.TrimSpace(got), want) {
			t.Errorf("%s: %q, %v; want %q at the end", alert, got, err, want)
		}
	}
}
