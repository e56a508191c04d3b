package dashboard

import (
	"context"
	"flag"
	"fmt"
	"html"
	"io"
	"log/slog"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"regexp"
	"runtime/debug"
	"strings"
	"sync"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/testenv"
	"github.com/pqbridge/pqbridge/testenv/harness"
)

func TestMain(m *testing.M) {
	_ = flag.Set("test.parallel", "8") // the tests mostly wait for the next look
	debug.SetGCPercent(400)            // each starts a server, which is soon garbage
	harness.Main(m, testenv.FDBGoroutines()...)
}

// rig is a dashboard with a bridge behind it.
type rig struct {
	*testenv.Env
	t     *testing.T
	board *Dashboard
	log   *harness.Transcript
	jobs  *client.Queue
	stop  func()
}

// newRig starts a dashboard. change, if not nil, changes its options. The test runs beside others.
func newRig(t *testing.T, change func(*Options)) *rig {
	t.Helper()
	t.Parallel()
	env := testenv.New(t, testenv.Options{})
	return serve(t, env, env.Connect(), change)
}

// newRigAs has a dashboard whose NATS user may publish to some subjects only.
func newRigAs(t *testing.T, allow ...string) *rig {
	t.Helper()
	env := testenv.New(t, testenv.Options{NATS: func(o *server.Options) {
		o.NoAuthUser = "all"
		o.Users = []*server.User{
			{Username: "all", Password: "all"},
			{
				Username:    "few",
				Password:    "few",
				Permissions: &server.Permissions{Publish: &server.SubjectPermission{Allow: allow}},
			},
		}
	}})

	return serve(t, env, env.Connect(nats.UserInfo("few", "few")), nil)
}

func serve(t *testing.T, env *testenv.Env, nc *nats.Conn, change func(*Options)) *rig {
	t.Helper()
	r := &rig{Env: env, t: t, log: &harness.Transcript{}}
	if env.Conn != nil {
		r.jobs = client.New(env.Conn, client.WithTimeout(testenv.Patience)).PriorityQueue("jobs")
	}

	o := Options{
		Listen:  "127.0.0.1:0",
		Conn:    nc,
		Grammar: env.Grammar,
		Timeout: testenv.Patience,
		Log:     slog.New(slog.NewTextHandler(r.log, nil)),
	}

	if change != nil {
		change(&o)
	}

	var err error
	r.board, err = New(o)
	must(t, err)

	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.board.Run(ctx) }()

	r.stop = sync.OnceFunc(func() {
		cancel()
		must(t, <-done)
	})

	t.Cleanup(r.stop)
	return r
}

// push pushes items, and returns their ids.
func (r *rig) push(values ...string) (ids []string) {
	r.t.Helper()
	for _, value := range values {
		ack, err := r.jobs.Push(context.Background(), 5, []byte(value))
		must(r.t, err)
		ids = append(ids, ack.ID)
	}

	return ids
}

func (r *rig) info() *client.QueueInfo {
	r.t.Helper()
	info, err := r.jobs.Info(context.Background())
	must(r.t, err)
	return info
}

// browser is somebody's browser.
type browser struct {
	http.Client
	t    *testing.T
	base string
}

func (r *rig) browser() *browser {
	jar, err := cookiejar.New(nil)
	must(r.t, err)
	transport := &http.Transport{}
	r.t.Cleanup(transport.CloseIdleConnections)

	b := &browser{
		t:      r.t,
		base:   r.board.URL(),
		Client: http.Client{Jar: jar, Transport: transport, Timeout: testenv.Patience},
	}

	b.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return b
}

// answer is a reply to a browser.
type answer struct {
	*http.Response
	body string
}

func (b *browser) do(method, path, body string, headers ...string) answer {
	b.t.Helper()
	r, err := http.NewRequest(method, b.base+path, strings.NewReader(body))
	must(b.t, err)

	if method == http.MethodPost {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}

	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
		if headers[i] == "Host" {
			r.Host = headers[i+1]
		}
	}

	response, err := b.Do(r)
	must(b.t, err)
	text, err := io.ReadAll(response.Body)
	must(b.t, err)
	must(b.t, response.Body.Close())

	return answer{response, string(text)}
}

func (b *browser) get(path string, headers ...string) answer {
	b.t.Helper()
	return b.do(http.MethodGet, path, "", headers...)
}

// sees gets a page until it has words: it does not wait long for what it shows.
func (b *browser) sees(path string, words ...string) (page answer) {
	b.t.Helper()
	testenv.Eventually(b.t, func() error {
		page = b.get(path)
		for _, word := range words {
			if page.StatusCode != http.StatusOK || !strings.Contains(page.body, word) {
				return fmt.Errorf("%s: status %d, %q is missing: %s", path, page.StatusCode, word,
					page.mainText())
			}
		}

		return nil
	})

	return page
}

// post sends a form of names and values.
func (b *browser) post(path string, fields ...string) answer {
	b.t.Helper()
	form := url.Values{}

	for i := 0; i < len(fields); i += 2 {
		form.Add(fields[i], fields[i+1])
	}

	return b.do(http.MethodPost, path, form.Encode())
}

// edited is the form of the settings on a page, with what somebody has typed; lists to choose from
// are left out.
func (a answer) edited(typed ...string) []string {
	_, form, _ := strings.Cut(a.body, `<section id="settings"`)
	form, _, _ = strings.Cut(form, "</section>")

	inputs := regexp.MustCompile(`name="([^"]+)" value="([^"]*)"`)
	for _, input := range inputs.FindAllStringSubmatch(form, -1) {
		typed = append(typed, input[1], html.UnescapeString(input[2])) // the first of a name counts
	}

	return typed
}

// editedSchedule is the form of a schedule on a page as a browser sends it, with what somebody has
// typed.
func (a answer) editedSchedule(typed ...string) []string {
	_, form, _ := strings.Cut(a.body, `class="stack schedule"`)
	form, _, _ = strings.Cut(form, "</form>")

	sent := func(text string) string { // browsers parse the page, and send their own ends of lines
		text = strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(html.UnescapeString(text))
		return strings.ReplaceAll(text, "\n", "\r\n")
	}

	inputs := regexp.MustCompile(`name="([^"]+)"[^>]* value="([^"]*)"`)
	for _, input := range inputs.FindAllStringSubmatch(form, -1) {
		typed = append(typed, input[1], sent(input[2])) // the first of a name counts
	}

	areas := regexp.MustCompile(`(?s)<textarea name="([^"]+)"[^>]*>\n(.*?)</textarea>`)
	for _, area := range areas.FindAllStringSubmatch(form, -1) {
		typed = append(typed, area[1], sent(area[2]))
	}

	lists := regexp.MustCompile(`(?s)<select name="([^"]+)".*?</select>`)
	for _, list := range lists.FindAllStringSubmatch(form, -1) {
		chosen := regexp.MustCompile(`value="([^"]*)" selected`).FindStringSubmatch(list[0])
		typed = append(typed, list[1], append(chosen, "", "")[1])
	}

	return typed
}

// save edits the settings of jobs as they are now.
func (b *browser) save(typed ...string) answer {
	b.t.Helper()
	return b.post("/queue/pq/jobs/config", b.get("/queue/pq/jobs").edited(typed...)...)
}

// wants checks an answer for its status and words.
func (a answer) wants(t *testing.T, code int, words ...string) answer {
	t.Helper()
	if a.StatusCode != code {
		t.Errorf("%s %s: status %d, want %d: %.600s", a.Request.Method, a.Request.URL, a.StatusCode,
			code, a.body)
	}

	for _, word := range words {
		if !strings.Contains(a.body, word) {
			t.Errorf("%s %s: %q is missing in %s", a.Request.Method, a.Request.URL, word,
				harness.Shorten("page", a.mainText()))
		}
	}

	return a
}

// mainText is the body without the frame of the page.
func (a answer) mainText() string {
	if _, after, ok := strings.Cut(a.body, "<main"); ok {
		return after
	}
	return a.body
}

// lacks checks that words are not in an answer.
func (a answer) lacks(t *testing.T, words ...string) {
	t.Helper()
	for _, word := range words {
		if strings.Contains(a.body, word) {
			_, after, _ := strings.Cut(a.body, word)
			t.Errorf("%s %s: %q is there, before %.200s", a.Request.Method, a.Request.URL, word,
				after)
		}
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
