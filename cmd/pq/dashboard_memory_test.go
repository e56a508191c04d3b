package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/subjects/schedule"
	"github.com/pqbridge/pqbridge/subjects/settings"
	"github.com/pqbridge/pqbridge/testenv"
	"github.com/pqbridge/pqbridge/testenv/harness"
)

// Queues that stand for the largest there can be.
const (
	largeSchedules = 100 // queues with 4 MiB of schedules each
	largeHeaders   = 205 // queues whose first items have headerBytes of headers each
	headerBytes    = 180_000
	smallQueues    = 60_000 // more than are listed
)

// pq dashboard lives in the 256 MiB that docs/dashboard.md gives it, however much the queues have
// and however many browsers look at all of them, and its pages say what they leave out.
func TestDashboardMemory(t *testing.T) {
	harness.OnlyNightly(t)
	if harness.Race {
		t.Skip("the race detector takes several times as much memory")
	}

	c := newNATS(t, nil)
	grow := serveLargeQueues(t, c.server)
	limit := func(cmd *exec.Cmd) { harness.LimitMemory(t, cmd, 256<<20) }
	d := &boarder{t: t, process: c.start(limit, "dashboard", "--listen", "127.0.0.1:0")}
	d.findURL()

	d.visit("queues with headers", largeHeaders,
		func(i int) string { return queuePath(largeSchedules + i) })
	d.visit("queues with schedules", largeSchedules, queuePath)
	d.visit("their items", largeHeaders,
		func(i int) string { return queuePath(largeSchedules+i) + "/items" })
	d.visit("items", 64, func(int) string { return queuePath(largeSchedules) + "/item/first" })
	d.visit("values", 100,
		func(int) string { return queuePath(largeSchedules) + "/item/first/value" })
	d.visit("other pages", 60,
		func(i int) string { return []string{"/dead", "/busy", "/bridges"}[i%3] })
	d.until("/schedules", "There are more")
	d.visit("schedules", 100, func(i int) string { return fmt.Sprint("/schedules?from=", i*100) })
	d.visit("a schedule", 100, func(i int) string { return scheduleOf(i) })
	d.fillForms("searches", 100,
		func(i int) (string, string) { return queuePath(i) + "/search", "match=first" })
	d.fillForms("long searches", 100, func(i int) (string, string) {
		return queuePath(i) + "/search", "match=first&junk=" + strings.Repeat("x", 1<<20)
	})

	for range 3 {
		// As large as can be, also in the answer.
		d.fillForms("a push", 1, func(int) (string, string) {
			return queuePath(largeSchedules) + "/push", "value=" + strings.Repeat(`"`, 4_000_000)
		})
	}

	d.fillForms("pushes", 64, func(i int) (string, string) {
		return queuePath(largeSchedules+i) + "/push", "value=" + strings.Repeat(`"`, 900_000)
	})
	d.visit("all again", 100, func(i int) string { return queuePath(3 * i) })
	d.readSlowly(24, queuePath(largeSchedules)+"/item/first/value")
	d.readSlowly(64, queuePath(largeSchedules)+"/item/first")
	grow()
	d.until("/", "There may be more queues")
	d.visit("queues", 64, func(int) string { return "/" })
}

func queuePath(i int) string { return "/queue/pq/" + queueName(i) }

func queueName(i int) string { return fmt.Sprintf("q%05d", i) }

func scheduleOf(i int) string { return "/schedule?kind=pq&queue=" + queueName(i) + "&id=s050" }

// serveLargeQueues answers requests as a bridge with these queues would. Each has the same items.
// The small ones are there once grow was called.
func serveLargeQueues(t *testing.T, server string) (grow func()) {
	t.Helper()
	nc, err := nats.Connect(server)
	must(t, err)
	t.Cleanup(nc.Close)

	schedules := map[string][]byte{} // of a queue, by id
	for i := range 4 << 20 / schedule.MaxContent {
		id := fmt.Sprintf("s%03d", i)
		set := schedule.Schedule{
			ID:    id,
			Cron:  "@daily",
			Value: bytes.Repeat([]byte("v"), schedule.MaxContent),
		}

		schedules[id] = schedule.Set(nil, &set, time.Now()).Encode()
	}

	items := subjects.ItemsPage{}
	for i := range 5 {
		item := subjects.StoredItem{
			ID:      strings.Replace(fmt.Sprint("item-", i), "item-0", "first", 1),
			State:   subjects.StateReady,
			Value:   []byte("hello"),
			Size:    5,
			Headers: map[string][]string{},
		}

		// Of 100 bytes each with its name, and with characters that have to be written out.
		value := strings.Repeat("a\u200b", (100-len("X-1234"))/len("a\u200b"))
		for n := range headerBytes / 100 {
			item.Headers[fmt.Sprint("X-", n)] = []string{value}
		}

		items.Items = append(items.Items, item)
	}

	info := subjects.QueueInfo{Ready: 5, Groups: map[string]subjects.GroupCount{}}
	for i := range 1000 {
		info.Priorities = append(info.Priorities,
			subjects.PriorityCount{Priority: int64(i), Count: 5})
		info.Groups[strings.Repeat("g", 30)+fmt.Sprint(i)] = subjects.GroupCount{Ready: 5}
	}

	for i := range settings.MaxPausedGroups {
		longest := fmt.Sprintf("%0*d", settings.MaxGroup, i)
		info.Settings.PausedGroups = append(info.Settings.PausedGroups, longest)
	}

	value := nats.NewMsg("")
	value.Header.Set(subjects.HeaderID, "first")
	// Of the largest message, with room for the header.
	value.Data = bytes.Repeat([]byte("v"), 1<<20-100)

	var queues atomic.Int64
	queues.Store(largeSchedules + largeHeaders)

	handle := func(subject string, reply func(m *nats.Msg) []byte) {
		// Fails when the test ends.
		_, err := nc.Subscribe(subject, func(m *nats.Msg) { _ = m.Respond(reply(m)) })
		must(t, err)
	}

	handle("pq.list", func(m *nats.Msg) []byte {
		o, err := subjects.ParseListOptions(m.Data)
		if err != nil {
			return nil
		}

		var list subjects.QueueList
		for i := range queues.Load() {
			name := queueName(int(i))
			if name <= o.After {
				continue
			}

			if len(list.Queues) == subjects.MaxList {
				list.Next = &list.Queues[len(list.Queues)-1].Queue
				break
			}

			list.Queues = append(list.Queues, subjects.QueueCounts{Queue: name, Ready: 5})
		}

		return list.Encode()
	})

	handle("q.list", func(*nats.Msg) []byte { return new(subjects.QueueList).Encode() })
	infoText, itemsText := info.Encode(), items.Encode()
	first := (&subjects.ItemsPage{Items: items.Items[:1]}).Encode()
	pushed := func(*nats.Msg) []byte { return []byte(`{"queue":"jobs","id":"first"}`) }
	handle("pq.*.push", pushed)
	handle("pq.*.push.*", pushed)
	handle("pq.*.info", func(*nats.Msg) []byte { return infoText })
	handle("pq.*.items", func(*nats.Msg) []byte { return itemsText })

	handle("pq.*.schedules", func(m *nats.Msg) []byte {
		o, err := subjects.ParseListOptions(m.Data)
		queue := strings.Split(m.Subject, ".")[1]

		if err != nil || queue >= queueName(largeSchedules) {
			return subjects.EncodeScheduleList(nil, nil)
		}

		var page [][]byte
		var last *string
		size := 0

		for _, id := range slices.Sorted(maps.Keys(schedules)) {
			if size > 900_000 {
				return subjects.EncodeScheduleList(page, last)
			}
			if id > o.After {
				page, last, size = append(page, schedules[id]), &id, size+len(schedules[id])
			}
		}

		return subjects.EncodeScheduleList(page, nil)
	})

	_, err = nc.Subscribe("pq.*.get", func(m *nats.Msg) {
		if bytes.Contains(m.Data, []byte(`"ids"`)) {
			_ = m.Respond(first)
		} else {
			_ = m.RespondMsg(&nats.Msg{Header: value.Header, Data: value.Data})
		}
	})
	must(t, err)
	must(t, nc.Flush())

	return func() { queues.Add(smallQueues) }
}

// boarder is pq dashboard in a process of its own, and its browsers.
type boarder struct {
	*process
	t    *testing.T
	base string
}

func (d *boarder) findURL() {
	d.t.Helper()
	testenv.Eventually(d.t, func() error {
		m := regexp.MustCompile(`http://\S+`).FindString(d.stdout.String())
		if d.base = m; m == "" {
			return fmt.Errorf("no address in %q, %q", d.stdout.String(), d.stderr.String())
		}

		return nil
	})
}

// browse does something n times, of 64 browsers at once, and says what the process took so far.
func (d *boarder) browse(name string, n int, do func(i int) (status int, err error)) {
	d.t.Helper()
	var work sync.WaitGroup
	var mu sync.Mutex
	todo, codes := 0, map[int]int{}
	began := time.Now()

	for range 64 {
		work.Go(func() {
			for {
				mu.Lock()
				i := todo
				todo++
				mu.Unlock()

				if i >= n {
					return
				}

				code, err := do(i)
				mu.Lock()
				if codes[code]++; err != nil && !isCut(err) {
					d.t.Errorf("%s: %v", name, err)
				}

				mu.Unlock()
			}
		})
	}

	work.Wait()
	d.t.Logf("%s: statuses %v in %v, %s", name, codes, time.Since(began).Round(time.Millisecond),
		d.peak())
	d.mustRun(name)

	if codes[0]+codes[http.StatusServiceUnavailable] == n {
		d.t.Errorf("%s: none was answered", name)
	}
}

// isCut reports whether a server has closed a connection: because it refused a form before all of
// it was sent or, where everything is slow, because a page took too long.
func isCut(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// mustRun fails the test if the process has ended.
func (d *boarder) mustRun(name string) {
	d.t.Helper()
	select {
	case <-d.ended:
		d.t.Fatalf("%s: pq dashboard has ended: %v\n%s", name, d.cmd.ProcessState,
			harness.Shorten("log", d.stderr.String()))
	default:
	}
}

// peak is the memory that the process took at most.
func (d *boarder) peak() string {
	status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", d.cmd.Process.Pid)) // it may have ended
	return regexp.MustCompile(`VmHWM:\s+\d+ kB`).FindString(string(status))
}

func (d *boarder) visit(name string, n int, path func(i int) string) {
	d.t.Helper()
	d.browse(name, n, func(i int) (int, error) {
		code, _, err := d.get(path(i))
		return code, err
	})
}

func (d *boarder) get(path string) (code int, page string, err error) {
	reply, err := browser.Get(d.base + path)
	if err != nil {
		return 0, "", err
	}

	defer reply.Body.Close()
	text, err := io.ReadAll(reply.Body)
	return reply.StatusCode, string(text), err
}

// browser follows no redirects.
var browser = http.Client{
	Transport:     &http.Transport{DisableKeepAlives: true},
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}

// until gets a page until it has words.
func (d *boarder) until(path, words string) {
	d.t.Helper()
	testenv.Eventually(d.t, func() error {
		d.mustRun(path)
		code, page, err := d.get(path)

		if err == nil && !strings.Contains(page, words) {
			err = fmt.Errorf("%s: status %d without %q: %s", path, code, words, page)
		}

		return err
	})
}

func (d *boarder) fillForms(name string, n int, form func(i int) (path, body string)) {
	d.t.Helper()
	d.browse(name, n, func(i int) (int, error) {
		path, body := form(i)
		reply, err := browser.Post(d.base+path, "application/x-www-form-urlencoded",
			strings.NewReader(body))
		if err != nil {
			return 0, err
		}

		_, err = io.Copy(io.Discard, reply.Body)
		return reply.StatusCode, cmp.Or(err, reply.Body.Close())
	})
}

// readSlowly has browsers ask for a page, and read nothing of it.
func (d *boarder) readSlowly(n int, path string) {
	d.t.Helper()
	to, err := url.Parse(d.base)
	must(d.t, err)

	d.browse("slow browsers", n, func(int) (int, error) {
		c, err := net.Dial("tcp", to.Host)
		if err != nil {
			return 0, err
		}

		d.t.Cleanup(func() { _ = c.Close() })
		must(d.t, c.(*net.TCPConn).SetReadBuffer(4096))
		_, err = fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n", path)
		status := make([]byte, len("HTTP/1.1 200"))

		if err == nil {
			_, err = io.ReadFull(c, status)
		}

		code := 0
		_, _ = fmt.Sscan(string(status[9:]), &code)
		return code, err
	})
}
