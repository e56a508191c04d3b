package jetstream

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/bridge/jetstream/leaf"
)

// asked is a request of the API that may be wrong in the way that its kind says.
type asked struct{ call, args, kind, payload string }

// difference is where the answer is not JetStream's: for which calls and kinds, ours if they have
// the same, and why.
type difference struct{ calls, kinds, ours, reason string }

var differences = []difference{
	{"*", "stream empty", "", "no call of NATS has such a subject, so nobody answers"},
	{"*", "consumer empty", "", "as above"},
	{"STREAM.INFO", "1 MiB of text", "400 10025", "requests have at most 64 KiB, and JetStream " +
		"ignores what is no object"},
	{"CONSUMER.CREATE", "metadata of 200 KB", "400 10025", "requests have at most 64 KiB"},
	{"CONSUMER.MSG.NEXT", "deep", "400", "pulls have at most 1 KiB"},
	{"CONSUMER.MSG.NEXT", "1 MiB*", "400", "as above"},
	{"STREAM.CREATE", "stream *", "500 10052", "the name of a queue has letters, digits, - and _"},
	{"STREAM.UPDATE", "stream *", "500 10052", "as above"},
	{"STREAM.*", "stream *", "404 10059", "as above"},
	{"CONSUMER.*CREATE", "stream not UTF-8", "404 10059", "as above; JetStream compares it with " +
		"the name in the payload first"},

	{"STREAM.DELETE", "*", "400 10003", "a queue cannot be deleted"},
	{"STREAM.MSG.*", "*", "400 10003", "items have no sequence numbers"},
	{"CONSUMER.RESET", "*", "400 10003", "items have no sequence numbers"},
	{"CONSUMER.PAUSE", "*", "400 10003", "only a queue is paused"},
	{"CONSUMER.UNPIN", "*", "400 10003", "there are no priority groups"},
	{"STREAM.CREATE", "other subjects", "500 10052", "clients hide the text of 10058"},
	{"STREAM.CREATE", "replicas", "400 10058", "anything else than what a queue is"},
	{"STREAM.CREATE", "replicas negative", "500 10052", "as above, without its subject"},
	{"STREAM.CREATE", "sealed", "400 10058", "as above"},
	{"STREAM.UPDATE", "replicas*", "500 10052", "as above"},
	{"STREAM.UPDATE", "*", "400 10056", "JetStream has another error for no name than for another"},
	{"STREAM.PURGE", "keep", "400 10003", "items have no sequence numbers"},
	{"STREAM.PURGE", "seq", "400 10003", "items have no sequence numbers"},
	{"STREAM.PURGE", "*", "400 10025", "a request that removes items must be understood, and " +
		"JetStream ignores what is no object"},

	{"CONSUMER.MSG.NEXT", "expires negative", "ok", "a pull whose time is over gets what is there"},
	{"CONSUMER.*CREATE", "consumer *", "400 10102", "names have at most 128 bytes"},
	{"CONSUMER.CREATE", "consumer not UTF-8", "500 10052", "a name is text"},
	{"CONSUMER.*CREATE", "consumer control", "500 10052", "a name is text"},
	{"CONSUMER.CREATE", "no ack_policy", "ok", "there is but one"},
	{"CONSUMER.CREATE", "config null", "ok", "as above"},
	{"CONSUMER.CREATE", "deliver_subject*", "500 10012", "there are no push consumers"},
	{"CONSUMER.CREATE", "replay original", "400 10182", "items come as soon as they can"},
	{"CONSUMER.CREATE", "groups and policy", "500 10012", "there are no priority groups"},
	{"CONSUMER.CREATE", "policy other", "400 10159", "JetStream cannot read it"},
	{"CONSUMER.CREATE", "backoff*", "500 10012", "backoff is a setting of the queue"},
	{"CONSUMER.CREATE", "pause", "500 10012", "only a queue is paused"},
	{"CONSUMER.CREATE", "headers only", "500 10012", "items come with their values"},
	{"CONSUMER.CREATE", "sample", "400 10095", "deliveries are not sampled"},
	{"CONSUMER.CREATE", "replicas", "400 10126", "that is what a cluster answers"},
	{"CONSUMER.CREATE", "ack wait *", "500 10012", "a lease has bounds"},
	{"CONSUMER.CREATE", "filter*", "400 10093", "JetStream lets a consumer have a filter that " +
		"matches nothing"},
	{"CONSUMER.CREATE", "metadata order", "500 10012", "our own metadata"},
	{"CONSUMER.CREATE", "metadata of 2 KB", "400 10135", "a record has 4 KB"},
	{"CONSUMER.CREATE", "description of 2 KB", "400 10107", "a record has 4 KB"},
}

// unlike returns which of the differences our answer to a request is, -1 if none.
func (a asked) unlike(ours string) int {
	return slices.IndexFunc(differences, func(d difference) bool {
		call, _ := path.Match(d.calls, a.call)
		kind, _ := path.Match(d.kinds, a.kind)
		return call && kind && (d.ours == "" || d.ours == ours)
	})
}

// both is a face and a NATS server with JetStream, which has a stream that is like a queue.
type both struct {
	*system
	*testing.T
	nc    *nats.Conn
	n     int
	texts map[string]string // of JetStream's codes, up to what differs
	seen  map[int]bool      // of differences
}

func newBoth(t *testing.T) *both {
	n := newServer(t, &server.Options{JetStream: true, StoreDir: t.TempDir()})
	nc, err := nats.Connect(n.ClientURL(), nats.Timeout(patience))
	must(t, err)

	t.Cleanup(nc.Close)
	texts := map[string]string{}

	for _, e := range server.ApiErrors {
		texts[fmt.Sprint(e.ErrCode)], _, _ = strings.Cut(e.Description, "{")
	}

	return &both{newSystem(t), t, nc, 0, texts, map[int]bool{}}
}

// reset gives the server the stream jobs, with the consumer min if that is said: a work queue of
// JetStream cannot have another one then.
func (b *both) reset(withMin bool) {
	b.T.Helper()
	b.server(asked{call: "STREAM.DELETE", args: ".jobs"})
	b.server(asked{call: "STREAM.DELETE", args: ".größe"})

	made := b.server(asked{
		"STREAM.CREATE", ".jobs", "",
		`{"name":"jobs","subjects":["pq.jobs.push"],"retention":"workqueue","storage":"memory"}`,
	})

	if withMin {
		made += b.server(asked{
			"CONSUMER.CREATE", ".jobs.min", "",
			create(`{"durable_name":"min","ack_policy":"explicit"}`),
		})
	}
	if strings.Trim(made, "ok") != "" {
		b.Fatal(made)
	}
}

// server returns the code and err_code of the server's answer, or "ok". Each request has a
// subscription of its own: nats.Conn.Request takes a message that JetStream still delivers to an
// earlier pull, whose subject is the stream's, for the answer to the only request that waits.
func (b *both) server(a asked) string {
	b.T.Helper()
	answers, err := b.nc.SubscribeSync(b.nc.NewInbox())
	must(b.T, err)

	defer answers.Unsubscribe()
	must(b.T, b.nc.PublishRequest("$JS.API."+a.call+a.args, answers.Subject, []byte(a.payload)))
	m, err := answers.NextMsg(patience)

	if errors.Is(err, nats.ErrNoResponders) {
		return "503"
	}
	if err != nil {
		b.Fatalf("%s %s: %v", a.call, a.kind, err)
	}

	return b.codes(m.Header.Get("Status"), m.Data)
}

// face returns the same of the face's answer, and what the answer says.
func (b *both) face(a asked) (codes, text string) {
	b.T.Helper()
	b.n++
	reply := fmt.Sprint("_INBOX.", b.n)

	b.receive(&leaf.Message{
		Subject: "$JS.pq.API." + a.call + a.args,
		Reply:   reply,
		Payload: []byte(a.payload),
	})

	m := b.sent()
	for m.Subject != reply { // an earlier pull gets more
		m = b.sent()
	}

	status, _, _ := strings.Cut(strings.TrimSpace(strings.TrimPrefix(string(m.Header), "NATS/1.0")),
		" ")
	text = strings.ReplaceAll(string(m.Header)+string(m.Payload), `\u003e`, ">")
	if len(text) > 3000 {
		b.Errorf("%s %s: %d bytes", a.call, a.kind, len(text))
	}

	return b.codes(status, m.Payload), text
}

func (b *both) codes(status string, payload []byte) string {
	b.T.Helper()
	if status != "" || !strings.HasPrefix(string(payload), "{") {
		return cmp.Or(status, "ok")
	}

	var r reply
	if err := json.Unmarshal(payload, &r); err != nil {
		b.Fatalf("%q: %v", payload, err)
	}

	if r.Error == nil {
		return "ok"
	}

	return fmt.Sprint(r.Error.Code, " ", r.Error.ErrorCode)
}

// compare compares the answers to a request. It returns whether the server has done something.
func (b *both) compare(a asked) bool {
	b.T.Helper()
	want := b.server(a)
	got, text := b.face(a)

	_, code, _ := strings.Cut(got, " ")
	if says := b.texts[code]; !strings.Contains(text, `"description":"`+says) && code != "" {
		b.Errorf("%s %q: got %.300q, want %q and what would be right", a.call, a.kind, text, says)
	}

	if got != want {
		i := a.unlike(got)
		b.seen[i] = true
		if i < 0 {
			b.Errorf("%s %q: got %q, JetStream %q: %.300s", a.call, a.kind, got, want, text)
		}
	}

	return want == "ok"
}

// Whatever is wrong with a request, its answer has the code and err_code that JetStream's has, but
// for the differences that are listed.
func TestConformance(t *testing.T) {
	b := newBoth(t)
	b.reset(true)
	b.push("jobs", make([]string, 100)...)

	for range 100 {
		must(t, b.nc.Publish("pq.jobs.push", nil))
	}

	all := append(wrongPayloads(), wrongNames()...)
	for _, a := range all {
		if a.call == countedPull {
			b.compare(a)
		}
	}

	for _, a := range all {
		if a.call != countedPull && b.compare(a) {
			b.reset(true)
		}
	}

	b.reset(false)
	for _, a := range consumerRequests() {
		if b.compare(a) {
			b.reset(false)
		}
		b.face(asked{call: "CONSUMER.DELETE", args: ".jobs.w"})
	}

	for i, d := range differences {
		if !b.seen[i] {
			t.Errorf("no difference: %v", d)
		}
	}
}

func wrongPayloads() (all []asked) {
	calls := [][2]string{
		{"INFO"},
		{"STREAM.INFO", ".jobs"},
		{"STREAM.NAMES"},
		{"STREAM.LIST"},
		{"STREAM.CREATE", ".jobs"},
		{"STREAM.UPDATE", ".jobs"},
		{"STREAM.PURGE", ".jobs"},
		{"STREAM.DELETE", ".jobs"},
		{"STREAM.MSG.GET", ".jobs"},
		{"STREAM.MSG.DELETE", ".jobs"},
		{"CONSUMER.CREATE", ".jobs.w"},
		{"CONSUMER.DURABLE.CREATE", ".jobs.w"},
		{"CONSUMER.INFO", ".jobs.min"},
		{"CONSUMER.NAMES", ".jobs"},
		{"CONSUMER.LIST", ".jobs"},
		{"CONSUMER.DELETE", ".jobs.w"},
		{"CONSUMER.PAUSE", ".jobs.min"},
		{"CONSUMER.RESET", ".jobs.min"},
		{"CONSUMER.UNPIN", ".jobs.min"},
		{"CONSUMER.MSG.NEXT", ".jobs.min"},
	}

	payloads := [][2]string{
		{"empty", ""},
		{"space", " \n"},
		{"object", "{}"},
		{"null", "null"},
		{"text", "x"},
		{"NUL", "\x00"},
		{"cut", "{"},
		{"array", "[]"},
		{"string", `"x"`},
		{"number", "7"},
		{"more after it", "{} x"},
		{"twice", "{}{}"},
		{"unknown member", `{"unheard_of":1}`},
		{"not UTF-8", "{\"\xff\":\"\xff\"}"},
		{"deep", strings.Repeat("[", 11_000)},
		{"offset of text", `{"offset":"x"}`},
		{"offset negative", `{"offset":-1}`},
		{"offset beyond", `{"offset":1000000}`},
		{"offset huge", `{"offset":1e99}`},
		{"offset fraction", `{"offset":1.5}`},
		{"offset beyond int64", `{"offset":9223372036854775808}`},
		{"offset null", `{"offset":null}`},
		{"offset object", `{"offset":{}}`},
		{"subject of number", `{"subject":7}`},
	}

	for _, call := range [][2]string{
		{"STREAM.INFO", ".jobs"},
		{"STREAM.CREATE", ".jobs"},
		{"STREAM.PURGE", ".jobs"},
		{"CONSUMER.CREATE", ".jobs.w"},
		{"CONSUMER.MSG.NEXT", ".jobs.min"},
	} {
		object := `{"x":"` + strings.Repeat("x", 1<<20-10) + `"}`
		all = append(all,
			asked{call[0], call[1], "1 MiB", object},
			asked{call[0], call[1], "1 MiB of text", strings.Repeat("x", 1<<20)})
	}

	for _, call := range calls {
		for _, p := range payloads {
			all = append(all, asked{call[0], call[1], p[0], p[1]})
		}
	}

	for _, s := range [][2]string{
		{"another name", `{"name":"other","subjects":["pq.jobs.push"]}`},
		{"no name", `{"subjects":["pq.jobs.push"]}`},
		{"name of number", `{"name":7}`},
		{"other subjects", `{"name":"jobs","subjects":["orders"]}`},
		{
			"retention of another kind",
			`{"name":"jobs","subjects":["pq.jobs.push"],"retention":"other"}`,
		},
		{"retention of number", `{"name":"jobs","subjects":["pq.jobs.push"],"retention":1}`},
		{"interest", `{"name":"jobs","subjects":["pq.jobs.push"],"retention":"interest"}`},
		{"storage of another kind", `{"name":"jobs","storage":"tape"}`},
		{
			"replicas",
			`{"name":"jobs","subjects":["pq.jobs.push"],"retention":"workqueue","num_replicas":3}`,
		},
		{"replicas negative", `{"name":"jobs","num_replicas":-1}`},
		{"max_msgs of text", `{"name":"jobs","max_msgs":"x"}`},
		{"max_msgs beyond int64", `{"name":"jobs","max_msgs":9223372036854775808}`},
		{"subjects of text", `{"name":"jobs","subjects":"pq.jobs.push"}`},
		{"max_age huge", `{"name":"jobs","max_age":1e30}`},
		{"sealed", `{"name":"jobs","subjects":["pq.jobs.push"],"sealed":true}`},
	} {
		all = append(all,
			asked{"STREAM.CREATE", ".jobs", s[0], s[1]},
			asked{"STREAM.UPDATE", ".jobs", s[0], s[1]})
	}

	for _, p := range [][2]string{
		{"seq and keep", `{"seq":1,"keep":1}`},
		{"keep", `{"keep":1}`},
		{"seq", `{"seq":2}`},
		{"seq negative", `{"seq":-2}`},
		{"filter of number", `{"filter":1}`},
		{"filter of nothing", `{"filter":"orders"}`},
	} {
		all = append(all, asked{"STREAM.PURGE", ".jobs", p[0], p[1]})
	}

	for _, p := range [][2]string{
		{"filter of number", `{"subjects_filter":1}`},
		{"details of text", `{"deleted_details":"x"}`},
		{"filter", `{"subjects_filter":"a..b"}`},
	} {
		all = append(all, asked{"STREAM.INFO", ".jobs", p[0], p[1]})
	}

	for _, p := range [][2]string{
		{"batch of text", `{"batch":"x"}`},
		{"batch negative", `{"batch":-1}`},
		{"batch fraction", `{"batch":1.5}`},
		{"batch beyond int64", `{"batch":9223372036854775808}`},
		{"number negative", `-5`},
		{"number huge", strings.Repeat("9", 40)},
		{"expires of text", `{"batch":1,"expires":"x"}`},
		{"expires negative", `{"batch":1,"expires":-1}`},
		{"heartbeat too large", `{"batch":1,"expires":100000000,"idle_heartbeat":90000000}`},
		{"heartbeat without expires", `{"batch":1,"idle_heartbeat":1000000}`},
		{"heartbeat negative", `{"batch":1,"expires":3600000000000,"idle_heartbeat":-1}`},
		{"max_bytes negative", `{"batch":1,"max_bytes":-1}`},
		{"max_bytes of one", `{"batch":1,"max_bytes":1}`},
		{"no_wait of text", `{"no_wait":"x"}`},
		{"group", `{"group":"a"}`},
		{"min_pending", `{"min_pending":1}`},
		{"min_ack_pending", `{"min_ack_pending":1}`},
		{"id", `{"id":"x"}`},
		{"priority", `{"priority":5}`},
		{"priority negative", `{"priority":-1}`},
		{"priority large", `{"priority":10}`},
	} {
		all = append(all, asked{"CONSUMER.MSG.NEXT", ".jobs.min", p[0], p[1]})
	}

	return all
}

// oddNames are names of consumers that JetStream refuses, or could.
var oddNames = [][2]string{
	{"*", "*"},
	{"empty", ""},
	{"33 bytes", strings.Repeat("x", 33)},
	{"129 bytes", strings.Repeat("x", 129)},
	{"256 bytes", strings.Repeat("x", 256)},
	{"3000 bytes", strings.Repeat("x", 3000)},
	{"not UTF-8", "a\xffb"},
	{"path", "a/b"},
	{"control", "a\x01b"},
}

func wrongNames() (all []asked) {
	const config = `,"config":{"ack_policy":"explicit"}}`
	const durable = `,"config":{"durable_name":"w","ack_policy":"explicit"}}`
	streams := [][2]string{
		{"stream *", "*"},
		{"stream >", ">"},
		{"stream empty", ""},
		{"stream of 300 bytes", strings.Repeat("x", 300)},
		{"stream of 3000 bytes", strings.Repeat("x", 3000)},
		{"stream not ASCII", "größe"},
		{"stream not UTF-8", "a\xffb"},
		{"stream path", "a/b"},
		{"stream control", "a\x01b"},
		{"stream with $", "$x"},
	}

	for _, s := range streams {
		quoted, _ := json.Marshal(s[1])
		name := string(quoted)
		for _, call := range [][3]string{
			{"STREAM.INFO"},
			{"STREAM.CREATE", "", `{"name":` + name + `,"subjects":["x.y"]}`},
			{"STREAM.UPDATE", "", `{"name":` + name + `}`},
			{"STREAM.PURGE"},
			{"STREAM.DELETE"},
			{"STREAM.MSG.GET", "", `{"seq":1}`},
			{"CONSUMER.INFO", ".min"},
			{"CONSUMER.NAMES"},
			{"CONSUMER.LIST"},
			{"CONSUMER.DELETE", ".w"},
			{"CONSUMER.MSG.NEXT", ".min"},
			{"CONSUMER.CREATE", ".w", `{"stream_name":` + name + config},
			{"CONSUMER.DURABLE.CREATE", ".w", `{"stream_name":` + name + durable},
		} {
			all = append(all, asked{call[0], "." + s[1] + call[1], s[0], call[2]})
		}
	}

	for _, c := range append(oddNames, [2]string{"nobody", "nobody"}) {
		for _, call := range []string{"CONSUMER.INFO", "CONSUMER.DELETE", "CONSUMER.MSG.NEXT"} {
			all = append(all, asked{call, ".jobs." + c[1], "consumer " + c[0], ""})
		}
	}

	return all
}

func consumerRequests() (all []asked) {
	for _, c := range [][2]string{
		{"explicit", `"ack_policy":"explicit"`},
		{"no ack_policy", `"max_deliver":1`},
		{"ack none", `"ack_policy":"none"`},
		{"ack all", `"ack_policy":"all"`},
		{"ack other", `"ack_policy":"other"`},
		{"ack number", `"ack_policy":1`},
	} {
		all = append(all, asked{"CONSUMER.CREATE", ".jobs.w", c[0], create("{" + c[1] + "}")})
	}

	for _, c := range [][2]string{
		{"deliver_subject", `"deliver_subject":"x"`},
		{"deliver_subject wildcard", `"deliver_subject":"x.>"`},
		{"direct", `"direct":true`},
		{"deliver new", `"deliver_policy":"new"`},
		{"deliver last", `"deliver_policy":"last"`},
		{"deliver other", `"deliver_policy":"other"`},
		{"deliver from sequence", `"deliver_policy":"by_start_sequence","opt_start_seq":5`},
		{"start sequence", `"opt_start_seq":5`},
		{"start sequence negative", `"opt_start_seq":-5`},
		{"start time", `"opt_start_time":"2030-01-01T00:00:00Z"`},
		{"start time of text", `"opt_start_time":"x"`},
		{"replay original", `"replay_policy":"original"`},
		{"replay other", `"replay_policy":"other"`},
		{"rate limit", `"rate_limit_bps":1`},
		{"rate limit negative", `"rate_limit_bps":-1`},
		{"heartbeat", `"idle_heartbeat":1000000000`},
		{"heartbeat negative", `"idle_heartbeat":-1`},
		{"flow control", `"flow_control":true`},
		{"groups", `"priority_groups":["a"]`},
		{"groups and policy", `"priority_groups":["a"],"priority_policy":"overflow"`},
		{"policy", `"priority_policy":"pinned_client"`},
		{"policy other", `"priority_policy":"other"`},
		{"policy none", `"priority_policy":"none"`},
		{"pin timeout", `"priority_timeout":1000000000`},
		{"pin timeout negative", `"priority_timeout":-1`},
		{"backoff", `"backoff":[1000000000],"max_deliver":3`},
		{"backoff negative", `"backoff":[-1],"max_deliver":3`},
		{"backoff longer", `"backoff":[1000000000,2000000000,3000000000],"max_deliver":2`},
		{"pause", `"pause_until":"2030-01-01T00:00:00Z"`},
		{"headers only", `"headers_only":true`},
		{"sample", `"sample_freq":"100%"`},
		{"sample of text", `"sample_freq":"x"`},
		{"replicas", `"num_replicas":3`},
		{"replicas one", `"num_replicas":1`},
		{"replicas negative", `"num_replicas":-1`},
		{"memory", `"mem_storage":true`},
		{"ack wait negative", `"ack_wait":-1`},
		{"ack wait short", `"ack_wait":1`},
		{"ack wait long", `"ack_wait":9000000000000000000`},
		{"ack wait of text", `"ack_wait":"1s"`},
		{"ack wait beyond int64", `"ack_wait":9223372036854775808`},
		{"max_waiting negative", `"max_waiting":-1`},
		{"max_waiting huge", `"max_waiting":2000000000000`},
		{"max_batch negative", `"max_batch":-1`},
		{"max_expires short", `"max_expires":1`},
		{"max_expires negative", `"max_expires":-1`},
		{"max_bytes negative", `"max_bytes":-1`},
		{"max_deliver negative", `"max_deliver":-7`},
		{"max_deliver huge", `"max_deliver":2000000000000`},
		{"max_deliver fraction", `"max_deliver":1.5`},
		{"max_deliver of text", `"max_deliver":"x"`},
		{"max_ack_pending negative", `"max_ack_pending":-7`},
		{"max_ack_pending huge", `"max_ack_pending":2000000000000`},
		{"inactive negative", `"inactive_threshold":-1`},
		{"inactive huge", `"inactive_threshold":9000000000000000000`},
		{"filter", `"filter_subject":"pq.jobs.push"`},
		{"filter other", `"filter_subject":"orders"`},
		{"filter wildcard", `"filter_subject":"pq.jobs.*"`},
		{"filter invalid", `"filter_subject":"a..b"`},
		{"filter of number", `"filter_subject":7`},
		{"filters", `"filter_subjects":["pq.jobs.push"]`},
		{"filters empty", `"filter_subjects":[""]`},
		{"filters twice", `"filter_subjects":["pq.jobs.push","pq.jobs.push"]`},
		{"filters other twice", `"filter_subjects":["orders","orders"]`},
		{"digits", `"max_waiting":` + strings.Repeat("9", 500_000)},
		{"filters other", `"filter_subjects":["orders"]`},
		{"filters of text", `"filter_subjects":"x"`},
		{
			"filter and filters",
			`"filter_subject":"pq.jobs.push","filter_subjects":["pq.jobs.push"]`,
		},
		{"metadata of 2 KB", `"metadata":{"a":"` + strings.Repeat("x", 2000) + `"}`},
		{"metadata of 200 KB", `"metadata":{"a":"` + strings.Repeat("x", 200_000) + `"}`},
		{"metadata of number", `"metadata":{"a":1}`},
		{"metadata order", `"metadata":{"pq.order":"middle"}`},
		{"description of 2 KB", `"description":"` + strings.Repeat("x", 2000) + `"`},
		{"description of 5 KB", `"description":"` + strings.Repeat("x", 5000) + `"`},
		{"durable other", `"durable_name":"v"`},
		{"durable same", `"durable_name":"w"`},
		{"name other", `"name":"v"`},
		{"durable of number", `"durable_name":7`},
		{"unknown member", `"unheard_of":1`},
	} {
		all = append(all, asked{
			"CONSUMER.CREATE", ".jobs.w", c[0], create(`{"ack_policy":"explicit",` + c[1] + "}"),
		})
	}

	for _, c := range append(oddNames, [2]string{"backslash", `a\b`}) {
		all = append(all, asked{
			"CONSUMER.CREATE", ".jobs." + c[1], "consumer " + c[0],
			create(`{"ack_policy":"explicit"}`),
		})

		name, _ := json.Marshal(c[1])
		all = append(all, asked{
			"CONSUMER.DURABLE.CREATE", ".jobs." + c[1], "consumer " + c[0],
			create(`{"ack_policy":"explicit","durable_name":` + string(name) + `}`),
		})
	}

	for _, name := range []string{"a.b", "a b", "a>b", "a/b", "a\tb"} {
		name, _ := json.Marshal(name)
		all = append(all, asked{
			"CONSUMER.CREATE", ".jobs", "name " + string(name),
			create(`{"ack_policy":"explicit","name":` + string(name) + `}`),
		})
	}

	explicit := `{"ack_policy":"explicit"}`
	return append(all,
		asked{
			"CONSUMER.CREATE", ".jobs.w", "another stream",
			`{"stream_name":"other","config":` + explicit + `}`,
		},
		asked{"CONSUMER.CREATE", ".jobs.w", "no stream", `{"config":` + explicit + `}`},
		asked{"CONSUMER.CREATE", ".jobs.w", "config null", create("null")},
		asked{"CONSUMER.CREATE", ".jobs.w", "config array", create("[]")},
		asked{"CONSUMER.CREATE", ".jobs.w", "config of text", create(`"x"`)},
		asked{
			"CONSUMER.CREATE", ".jobs.w", "action of another kind",
			`{"stream_name":"jobs","action":"drop","config":` + explicit + `}`,
		},
		asked{
			"CONSUMER.CREATE", ".jobs.w", "action of number",
			`{"stream_name":"jobs","action":1,"config":` + explicit + `}`,
		},
		asked{
			"CONSUMER.CREATE", ".jobs.w", "update of none",
			`{"stream_name":"jobs","action":"update","config":` + explicit + `}`,
		},
		asked{
			"CONSUMER.CREATE", ".jobs", "durable without name",
			create(`{"ack_policy":"explicit","durable_name":"w"}`),
		},
		asked{
			"CONSUMER.CREATE", ".jobs.w.orders", "filter in the subject",
			create(`{"ack_policy":"explicit","filter_subject":"pq.jobs.push"}`),
		},
		asked{
			"CONSUMER.CREATE", ".jobs.w.orders", "filters in the subject",
			create(`{"ack_policy":"explicit","filter_subjects":["pq.jobs.push"]}`),
		},
		asked{
			"CONSUMER.CREATE", ".jobs.w.pq.jobs.push", "filter same in the subject",
			create(`{"ack_policy":"explicit","filter_subject":"pq.jobs.push"}`),
		},
		asked{
			"CONSUMER.CREATE", ".jobs.w.pq.jobs.push", "filter only in the subject",
			create(explicit),
		},
		asked{"CONSUMER.DURABLE.CREATE", ".jobs.w", "no durable", create(explicit)},
		asked{
			"CONSUMER.DURABLE.CREATE", ".jobs.w", "durable other",
			create(`{"ack_policy":"explicit","durable_name":"v"}`),
		},
	)
}
