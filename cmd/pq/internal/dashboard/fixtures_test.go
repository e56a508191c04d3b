package dashboard

import (
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/micro"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/fdbpq/schedule"
	"github.com/pqbridge/pqbridge/fdbpq/settings"
	"github.com/pqbridge/pqbridge/subjects"
)

var fixturesDir = flag.String("fixtures", "", "write the pages of TestFixtures, and the assets, to this directory")

// noon is when the fixtures were seen.
var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// TestFixtures renders pages as they look in use. With -fixtures they can be looked at.
func TestFixtures(t *testing.T) {
	r := parsed(t)
	if *fixturesDir != "" {
		if err := os.CopyFS(filepath.Join(*fixturesDir, r.root), r.assets); err != nil && !os.IsExist(err) {
			t.Fatal(err)
		}
	}

	all := fixtures()
	for name, view := range views() { // as wide as nothing else is
		if page, is := strings.CutPrefix(name, "page-"); is {
			fill(reflect.ValueOf(view).Elem(), strings.Repeat("a_long_word", 15))
			all["long-"+page] = fixture{page: page, title: "long", view: view}
		}
	}
	for name, f := range all {
		s := &shell{
			Title: f.title, Nav: f.nav, Now: noon, CSRF: "c5rf", User: "ops", Server: "nats://127.0.0.1:4222", LogOut: true,
			HideValues: f.hide, Status: status{State: "live", Since: noon.Add(-time.Hour)},
		}
		if f.away != "" {
			s.Status = status{State: "away", Text: f.away, Since: noon.Add(-42 * time.Second)}
		}
		var b strings.Builder
		if err := r.page(&b, f.page, s, f.view); err != nil {
			t.Fatal(err)
		}
		checkHTML(t, b.String())
		if *fixturesDir != "" {
			if err := os.WriteFile(filepath.Join(*fixturesDir, name+".html"), []byte(b.String()), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
}

type fixture struct {
	page, nav, title, away string
	hide                   bool
	view                   any
}

func fixtures() map[string]fixture {
	item := deadItem(3)
	item.Value = []byte(`{"order":"A-20931","customer":{"name":"Acme GmbH","tenant":"acme","tier":2,"tags":["eu","priority"]},` +
		`"lines":[{"sku":"K-11","qty":3,"price":19.9},{"sku":"M-02","qty":1,"price":249}],"note":"Ring \u202etwice\u202c, <b>then</b> wait",` +
		`"callback":"https://acme.example/hooks/orders?id=20931&sig=3f1c","retry":null,"dry":false}`)
	item.Size = len(item.Value)
	binary := deadItem(4)
	binary.Value = make([]byte, 600)
	for i := range binary.Value {
		binary.Value[i] = byte(i * 7)
	}
	binary.Size, binary.ValueCut = 1<<20, true

	all := can{true, true, true, true, true, true, true}
	empty := &queueView{queueRow: queueRow{queueRef: queueRef{"pq", "new"}}, Can: all}
	search := itemsFixture(true)
	search.Filter.Match, search.Filter.Header = "acme", "X-Tenant: acme"
	search.Rows = search.Rows[:12]
	search.Search = &searchView{ID: "s1", Scanned: 312_400, Total: 700_000, Found: 12, Took: 1400 * time.Millisecond, Running: true}
	look := itemsFixture(false)
	look.Can = can{}

	return map[string]fixture{
		"queues":      {page: "queues", nav: "queues", title: "Queues", view: queuesFixture(50)},
		"queues-away": {page: "queues", nav: "queues", title: "Queues", view: queuesFixture(8), away: "no bridge answers on pq.list: no responders"},
		"queues-none": {page: "queues", nav: "queues", title: "Queues", view: &queuesView{}},
		"queue":       {page: "queue", nav: "queues", title: "jobs", view: queueFixture()},
		"queue-new":   {page: "queue", nav: "queues", title: "new", view: empty},
		"items":       {page: "items", nav: "queues", title: "jobs", view: itemsFixture(false)},
		"items-look":  {page: "items", nav: "queues", title: "jobs", view: look, hide: true},
		"search":      {page: "items", nav: "queues", title: "jobs-dead", view: search},
		"item":        {page: "item", nav: "queues", title: "item", view: &itemView{itemRow: item, Can: all}},
		"item-hex":    {page: "item", nav: "queues", title: "item", view: &itemView{itemRow: binary, Can: all}},
		"dead":        {page: "dead", nav: "dead", title: "Dead letters", view: deadFixture()},
		"bridges":     {page: "bridges", nav: "bridges", title: "Bridges", view: bridgesFixture()},
		"login":       {page: "login", nav: "login", title: "Log in", view: &loginView{Next: "/", Error: "That is not the token."}},
		"error": {page: "error", title: "Not found", view: &errorView{Title: "No such page",
			Text: "queue \"a b\": want 1 to 128 ASCII letters, digits, '-' and '_'"}},
		"confirm": {page: "confirm", nav: "queues", title: "Move", view: &confirmView{Sample: search.Rows[:4], Priority: "5x", actionView: actionView{Action: "move", Queue: queueRef{"pq", "jobs-dead"}, Count: 12,
			Search: "s1", Error: `priority "5x": want an integer, such as 5 or -5`}}},
		"purge": {page: "confirm", nav: "queues", title: "Purge", view: &confirmView{actionView: actionView{Action: "purge", Queue: queueRef{"pq", "jobs"}, Count: 4096}}},
		"done": {page: "done", nav: "queues", title: "Sent home", view: &doneView{actionView: actionView{Action: "redrive", Queue: queueRef{"pq", "jobs-dead"}, Count: 12}, Done: 10,
			Homes:    map[string]int64{"jobs": 8, "mail": 2},
			Failures: map[string][]string{"the item is not in the queue": {item.ID, binary.ID}}}},
	}
}

func to[T any](v T) *T { return &v }

// wave is a line that looks measured.
func wave(seed uint64, n int, level float64) []int64 {
	noise := rand.New(rand.NewPCG(seed, 1))
	line := make([]int64, n)
	at := level
	for i := range line {
		at += (level-at)*0.08 + noise.NormFloat64()*level*0.09
		line[i] = int64(max(at*(1+0.25*math.Sin(float64(i)/9+float64(seed))), 0))
	}
	return line
}

func queuesFixture(n int) *queuesView {
	names := strings.Fields(`jobs mail mail-bulk thumbnails transcode-4k billing billing-retries invoices-eu invoices-us webhooks
		webhooks-acme search-index search-reindex exports imports-csv pdf-render sms push-notifications geo-lookup fraud-check
		reports-nightly reports-weekly cleanup archive audit-log ml-features ml-training image-resize ocr translate
		notify-slack notify-teams refunds payouts ledger reconcile sessions-expire cache-warm sitemap crawl
		dns-check certificates backups-verify metrics-rollup alerts surveys onboarding trial-ends churn-score a-queue-with-quite-a-long-name-for-tenant-0042`)
	v := &queuesView{Sort: "ready", Desc: true, Total: n, Matching: n, InLine: wave(90, 60, 800), OutLine: wave(91, 60, 780)}
	noise := rand.New(rand.NewPCG(7, 7))
	for i := range n {
		ready := int64(1_200_000 / math.Pow(float64(i+1), 1.9))
		if i > 38 {
			ready = 0
		}
		row := queueRow{queueRef: queueRef{"pq", names[i%len(names)]}, counts: counts{Ready: ready, Line: wave(uint64(i), 60, float64(ready)+0.4)}}
		if i%7 == 3 {
			row.Kind = "q"
		}
		if ready > 0 {
			row.Oldest = to(time.Duration(math.Pow(noise.Float64(), 4) * float64(30*time.Hour)))
			row.Leased, row.Delayed = noise.Int64N(40), max(noise.Int64N(900)-500, 0)
		}
		row.In, row.Out = to(float64(ready)/9000), to(float64(ready)/9100+0.001)
		row.Dead = to[int64](0)
		if i%6 == 1 {
			row.Dead, row.DeadQueue = to(noise.Int64N(700)), &queueRef{row.Kind, row.Name + "-dead"}
		}
		if i == 5 {
			row.Paused, row.PausedUntil = true, noon.Add(12*time.Minute)
		}
		if i == 40 {
			row.In, row.Out, row.Dead = nil, nil, nil
		}
		v.Rows = append(v.Rows, row)
		v.Sum.Ready, v.Sum.Leased, v.Sum.Delayed = v.Sum.Ready+row.Ready, v.Sum.Leased+row.Leased, v.Sum.Delayed+row.Delayed
	}
	v.Sum.In, v.Sum.Out, v.Sum.Dead, v.Sum.Line = to(812.4), to(790.1), to[int64](2114), wave(92, 60, 1.2e6)
	v.Pager = pager{From: 1, To: int64(n), Next: "/?from=101"}
	return v
}

func queueFixture() *queueView {
	v := &queueView{queueRow: queuesFixture(6).Rows[1], Exists: true, Can: can{true, true, true, true, true, true, true}}
	v.queueRef = queueRef{"pq", "jobs"}
	v.Oldest = to(4*time.Minute + 11*time.Second)
	v.Info = &client.QueueInfo{NextDue: to(noon.Add(8 * time.Second)), PrioritiesMore: true}
	v.Paused, v.PausedUntil = true, noon.Add(12*time.Minute)
	chart := func(id string, seed uint64, names []string, levels ...float64) series {
		s := series{ID: id, Names: names}
		for i := range 300 {
			s.At = append(s.At, noon.Add(time.Duration(i-300)*2*time.Second).Unix())
		}
		for i, level := range levels {
			var line []*float64
			for _, n := range wave(seed+uint64(i), 300, level) {
				line = append(line, to(float64(n)))
			}
			s.Lines = append(s.Lines, line)
		}
		return s
	}
	v.CountsChart = chart("counts", 3, []string{"ready", "leased", "delayed"}, 320_000, 42_000, 90_000)
	v.RatesChart = chart("rates", 8, []string{"in", "out"}, 210, 190)
	for i, n := range []int64{118_002, 90_411, 61_220, 33_007, 12_934, 4_100, 902, 31, 2} {
		v.Info.Priorities = append(v.Info.Priorities, subjects.PriorityCount{Priority: []int64{-10, 0, 1, 2, 3, 5, 8, 100, 5000}[i], Count: n})
	}
	v.Info.GroupsAtLimit, v.Info.GroupsMore = 1, true
	v.Info.Groups = map[string]subjects.GroupCount{
		"acme": {Ready: 1200, Leased: 3}, "<b>\u202e": {Ready: 7}, strings.Repeat("long ", 25): {Leased: 1},
	}
	v.Info.Consumers = []subjects.QueueConsumer{
		{Name: "mailer", Order: "min", AckWait: time.Minute, MaxDeliver: 5, MaxAckPending: 100, Created: noon, Description: "sends <b>mail\u202e"},
		{Name: strings.Repeat("long", 30), Order: "max"},
	}
	v.Schedules = []*client.ScheduleRecord{
		{Schedule: client.Schedule{ID: "nightly", Cron: "0 3 * * *", Zone: "Europe/Berlin", Priority: 5}, Next: noon.Add(time.Hour), Last: noon, Fired: 12},
		{Schedule: client.Schedule{ID: "<b>\u202e" + strings.Repeat("long", 20), Every: schedule.Duration(time.Minute), Paused: true}, Skipped: 3},
	}
	v.Head = itemsFixture(false).Rows[:5]
	for _, row := range [][3]string{{"ack_wait", "length of leases", "30s"}, {"backoff", "delays after failures", ""}, {"max_deliver", "deliveries of an item", ""},
		{"dead_letter", "queue of what failed", "jobs-dead"}, {"ttl", "life of an item", ""}, {"max_leased", "most leases at a time", ""}, {"max_items", "most items in the queue", ""}} {
		v.Settings.Rows = append(v.Settings.Rows, settingRow{Setting: &settings.Setting{Name: row[0], About: row[1]}, Without: row[2]})
	}
	v.Settings.Rows = append(v.Settings.Rows, settingRow{Setting: &settings.Setting{Name: "discard", About: "new or old: what goes", Choices: []string{"new", "old"}}, Without: "new"})
	v.Settings.Fields = map[string]field{"max_deliver": {"5", ""}, "backoff": {"1s,ten", `"ten": want durations such as 1s,10s,1m`}}
	v.Settings.Error = "backoff: \"ten\": want durations such as 1s,10s,1m"
	v.Push.Done = "Pushed: FQEUAAZgsSk-WP2dUQEwPdUmVNcIYVo"
	return v
}

func deadItem(i int) itemRow {
	reasons := []string{"timed out after 30s: POST https://acme.example/hooks: context deadline exceeded", "HTTP 502 from upstream",
		"no such customer: \u202e<script>alert(1)</script>", "pq: duplicate key value violates unique constraint \"orders_pkey\""}
	row := itemRow{Queue: queueRef{"pq", "jobs-dead"}}
	row.ID = fmt.Sprintf("FQEUAAZgsSk-WP2dUQEwPdUmVN%05x", i*7919)
	row.Priority, row.State, row.Deliveries, row.Size = int64(i%4), subjects.StateReady, 5, 180+i*31
	row.PushedAt = to(noon.Add(-time.Duration(i*i) * 97 * time.Second))
	row.Headers = map[string][]string{"X-Tenant": {"acme"}, "X-Trace": {"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}, "Content-Type": {"application/json"}, "X-Note": {"zero\u200bwidth"}}
	row.Value = fmt.Appendf(nil, `{"order":"A-%d","customer":"acme","items":[{"sku":"K-11","qty":%d}],"total":%d.90}`, 20931+i, i%5+1, 19+i*3)
	row.Deliveries = 0 // since it died
	row.Dead = &subjects.DeadLetter{Queue: "jobs", Reason: "max_deliver", At: noon.Add(-time.Duration(i*i) * 61 * time.Second), Deliveries: 5, Error: reasons[i%4]}
	return row
}

func itemsFixture(dead bool) *itemsView {
	v := &itemsView{
		Queue: queueRef{"pq", "jobs"}, Can: can{true, true, true, true, true, dead, true}, IsDead: dead,
		Counts: counts{Ready: 318_200, Leased: 41, Delayed: 812}, Filter: itemsFilter{End: "min"},
		Pager: pager{First: "?", Next: "?after=x"},
	}
	if dead {
		v.Queue.Name = "jobs-dead"
	}
	for i := range 40 {
		row := deadItem(i)
		if !dead {
			row.Queue, row.Dead, row.Deliveries = v.Queue, nil, int64(i%9/7)
			row.Priority = int64(i / 9)
			switch i % 9 {
			case 2:
				row.State, row.Due, row.Deliveries = subjects.StateLeased, to(noon.Add(17*time.Second)), 1
			case 5:
				row.State, row.Due, row.Reason, row.Deliveries = subjects.StateDelayed, to(noon.Add(4*time.Minute)), "HTTP 502 from upstream", 2
			}
		}
		v.Rows = append(v.Rows, row)
	}
	return v
}

func deadFixture() *deadView {
	v := &deadView{Queues: 4, Total: 700_412, Counted: 412_000, Running: true}
	for i, n := range []int64{301_220, 88_204, 20_431, 1_900, 231, 12, 2} {
		reason := []string{"HTTP 502 from upstream", "timed out after 30s: POST https://acme.example/hooks: context deadline exceeded (Client.Timeout exceeded while awaiting headers)",
			"pq: duplicate key value violates unique constraint \"orders_pkey\"", "terminated", "no such customer: \u202e<script>alert(1)</script>", "max_deliver", "exit status 3"}[i]
		home := []string{"jobs", "webhooks-acme", "billing", "mail"}[i%4]
		v.Reasons = append(v.Reasons, deadReason{Reason: reason, Queue: queueRef{"pq", home + "-dead"}, Home: queueRef{"pq", home}, Count: n,
			Oldest: noon.Add(-time.Duration(i+2) * 31 * time.Hour), Newest: noon.Add(-time.Duration(i*i) * 211 * time.Second),
			Search: "s", Can: can{Redrive: true, Remove: true}})
	}
	return v
}

func bridgesFixture() *bridgesView {
	v := &bridgesView{}
	for i, id := range []string{"GMKC7Z2XWQ", "H0TR51NAEB", "QX84VVD2PL"} {
		v.Rows = append(v.Rows, bridgeRow{
			Stats:       micro.Stats{ServiceIdentity: micro.ServiceIdentity{ID: id, Version: "0.9.0"}, Started: noon.Add(-time.Duration(i+1) * 29 * time.Hour)},
			BridgeStats: subjects.BridgeStats{Store: "7c1f2ab9", Ready: i != 2, Waiters: 48 - 20*i},
			In:          to(271.0 - float64(i)*90), Out: to(260.2 - float64(i)*85), PerSecond: to(1204.6 - float64(i)*300),
			Errors: int64(i * 17), Took: to(time.Duration(3+i) * time.Millisecond), Line: wave(uint64(20+i), 60, 1200)})
	}
	v.Rows[2].Why, v.Rows[2].LastError = "the store does not answer", "503: the store does not answer: try again later"
	return v
}
