package dashboard

import (
	"context"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/client"
)

var shots = flag.Bool("shots", false, "write the screenshots of the documents")

// maxShots is how many bytes they may have together.
const maxShots = 1_500_000

// The pictures of the documents are of a system that has been at work for a minute, so that there
// is something to see.
func TestShots(t *testing.T) {
	if !*shots {
		t.Skip("make shots")
	}

	s := newSystem(t)
	ctx, stop := context.WithCancel(t.Context())
	var working sync.WaitGroup
	defer working.Wait()
	defer stop()
	s.shop(ctx, &working)

	desk := newTab(t, s.url)
	desk.resize(1200, 760)
	desk.open("/")
	pause(ctx, 75*time.Second) // charts and lines fill

	desk.shoot("queues-light")
	desk.theme("dark")
	desk.shoot("queues-dark")
	desk.theme("light")
	desk.resize(1200, 900)
	desk.open("/queue/pq/orders")
	desk.until(`$(".chart canvas") && $("#head tbody tr")`)
	desk.shoot("queue-light")
	desk.theme("dark")
	desk.shoot("queue-dark")

	desk.resize(1200, 620)
	desk.open("/queue/pq/orders-dead/items")
	desk.search("", "X-Tenant: acme")
	desk.seesIn("#items", "Looked at all")
	desk.click("[data-pick-match]")
	desk.shoot("search-dark")
	desk.theme("light")
	desk.open("/dead")
	desk.seesIn("#dead", "payment provider")
	desk.until(`!$("#dead progress")`)
	desk.shoot("dead-light")

	phone := newTab(t, s.url)
	phone.resize(360, 740)
	phone.open("/")
	phone.sees("orders")
	phone.shoot("queues-phone")
	phone.theme("dark")
	phone.open("/queue/pq/orders-dead/item/" + s.ids("orders-dead")[0])
	phone.seesIn("#value", "customer")
	phone.shoot("item-phone")

	total := int64(0)
	files, err := filepath.Glob(filepath.Join(root, "docs", "images", "*.png"))
	must(t, err)

	for _, file := range files {
		info, err := os.Stat(file)
		must(t, err)
		total += info.Size()
	}
	if t.Logf("%d pictures, %d bytes", len(files), total); total > maxShots {
		t.Errorf("want at most %d bytes", maxShots)
	}
}

// theme has the browser prefer light or dark pages.
func (b *tab) theme(name string) {
	b.Helper()
	call(b, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: name}},
	})
}

// shoot writes what the window shows.
func (b *tab) shoot(name string) {
	b.Helper()
	eval[bool](b, `document.fonts.ready.then(() => {
		scrollTo(0, 0)
		document.getAnimations().forEach(a => a.finish()) // to another theme
		return true
	})`)

	picture, err := chromedp.Run(b.ctx, chromedp.CaptureScreenshot())
	must(b, err)
	folder := filepath.Join(root, "docs", "images")
	must(b, os.MkdirAll(folder, 0o755))
	must(b, os.WriteFile(filepath.Join(folder, name+".png"), picture, 0o644))
}

// shop has the queues of a shop at work until ctx ends.
func (s *system) shop(ctx context.Context, working *sync.WaitGroup) {
	s.t.Helper()
	random := rand.New(rand.NewPCG(1, 2))
	tenants := []string{
		"acme", "initech", "globex", "hooli", "umbrella", "stark", "wayne", "tyrell",
	}

	reasons := []string{
		"payment provider: 402 card declined", "timed out", "no such customer",
		"payment provider: 503 service unavailable", "invalid address: postcode",
		"panic: runtime error: index out of range [3] with length 3",
	}

	item := func(i int) client.PushItem {
		tenant := func() string { return tenants[random.IntN(len(tenants))] }
		value := fmt.Appendf(nil, `{"order": %d, "customer": {"id": %d, "name": "%s"}, `+
			`"lines": [{"sku": "A-%d", "count": %d}], "total": %d.%02d}`, 10_000+i,
			random.IntN(9000), tenant(),
			random.IntN(900), 1+random.IntN(4), random.IntN(400), random.IntN(100))

		headers := nats.Header{"X-Tenant": {tenant()}, "Content-Type": {"application/json"}}
		message := client.Message{Value: value, Headers: headers}
		return client.PushItem{Message: message, Priority: int64(random.IntN(6))}
	}

	fill := func(queue string, n int) {
		items := make([]client.PushItem, n)
		for i := range items {
			items[i] = item(i)
		}

		if n > 0 {
			_, err := s.client.PriorityQueue(queue).PushMany(ctx, items)
			must(s.t, err)
		}
	}

	for queue, n := range map[string]int{"orders": 412, "webhooks": 96, "thumbnails": 11} {
		fill(queue, n)
		for i := range n {
			s.bury(queue, reasons[int(math.Sqrt(float64(i%36)))])
		}
	}

	for queue, n := range map[string]int{
		"orders":             9840,
		"emails":             12_400,
		"thumbnails":         310,
		"webhooks":           87,
		"invoices":           24,
		"exports":            6,
		"search-index":       5200,
		"push-notifications": 0,
		"fraud-checks":       41,
		"reports":            129,
	} {
		fill(queue, n)
	}

	for range 14 {
		_, err := s.client.PriorityQueue("invoices").Push(ctx, 3, item(1).Value,
			client.Delay(time.Hour))
		must(s.t, err)
	}

	_, err := s.client.FIFOQueue("audit-log").Push(ctx, 0,
		[]byte(`{"user": "ann", "did": "log in"}`))
	must(s.t, err)
	paused := client.Settings{PauseUntil: time.Now().Add(45 * time.Minute)}
	_, err = s.client.PriorityQueue("exports").Configure(ctx, paused)
	must(s.t, err)

	// Producers and workers, faster and slower in waves.
	for i, queue := range []string{
		"orders", "emails", "thumbnails", "webhooks", "push-notifications", "search-index",
		"fraud-checks",
	} {
		q, rate := s.client.PriorityQueue(queue), float64(40/(i+1)+3)
		began := time.Now()

		wave := func(shift float64) time.Duration {
			now := time.Since(began).Seconds()
			return time.Duration(
				float64(time.Second) / (rate * (1 + 0.7*math.Sin(now/(5+float64(i))+shift))))
		}

		value := item(i)
		working.Go(func() {
			for n := int64(0); pause(ctx, wave(0)); n++ {
				_, _ = q.PushMsg(ctx, n%6, value.Message)
			}
		})

		working.Go(func() {
			for pause(ctx, wave(1)) {
				delivery, err := q.Lease(ctx)
				if err != nil {
					continue
				}

				working.Go(func() {
					if pause(ctx, 400*time.Millisecond) {
						_ = delivery.Ack(ctx)
					}
				})
			}
		})
	}
}

// pause waits, and reports whether ctx goes on.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
