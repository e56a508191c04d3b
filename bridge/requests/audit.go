package requests

import (
	"cmp"
	"context"
	"encoding/json"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/bridge/internal/wire"
	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/subjects/settings"
)

// auditEntry is a line of the log about a request that changes many items, settings or a schedule.
type auditEntry struct {
	on            int // what it changes
	action, queue string
	request       string // what the payload says besides ids and content
	outcome       string // OutcomeUnknown, or "" for success

	// Who asked. Within an account, a service learns only the reply subject from NATS: client is
	// the client's own word, and inbox the reply subject without its last token. For a request from
	// another account, nats says who made it, whatever the client claims.
	client, inbox, nats string
}

// What an action changes. A request about a single item is not logged: programs make them all the
// time.
const (
	noAudit = iota
	auditItems
	auditSettings // or a schedule
)

// Bounds of what clients choose, in bytes.
const (
	maxAuditRequest = 512
	maxAuditClient  = 256
	maxClientInfo   = 16 << 10 // of the header, which may have a JWT
)

// newAuditEntry returns the entry for a request that changes on.
func newAuditEntry(m *nats.Msg, on int, r *subjects.Request) *auditEntry {
	client := m.Header.Get(subjects.HeaderClient)
	a := &auditEntry{
		on: on, action: r.Verb.String(), queue: r.Kind.Short() + "." + r.Queue,
		request: auditRequest(m.Data), client: settings.CleanText(client, maxAuditClient),
	}
	if wire.Imported(m.Reply) {
		a.nats = natsClient(m.Header.Get(subjects.HeaderRequestInfo))
	} else {
		inbox := m.Reply[:max(strings.LastIndexByte(m.Reply, '.'), 0)]
		a.inbox = settings.CleanText(inbox, maxAuditClient)
	}

	return a
}

// auditRequest returns the payload without ids, which are many, and without the content of a
// schedule, which is nobody's business.
func auditRequest(payload []byte) string {
	var members map[string]json.RawMessage
	if json.Unmarshal(payload, &members) != nil {
		return ""
	}

	for _, name := range []string{"ids", "places", "value", "headers"} {
		delete(members, name)
	}
	if len(members) == 0 {
		return ""
	}
	text, _ := json.Marshal(members) // which came from JSON
	return settings.CleanText(string(text), maxAuditRequest)
}

// natsClient returns who made a request from another account, as NATS says. Unless the import has
// "share", that is the account alone.
func natsClient(info string) string {
	var c struct{ Acc, User, Host, Name string }
	if len(info) > maxClientInfo || json.Unmarshal([]byte(info), &c) != nil {
		return ""
	}

	text := "account " + c.Acc
	for _, part := range [][2]string{{"user", c.User}, {"host", c.Host}, {"name", c.Name}} {
		if part[1] != "" {
			text += " " + part[0] + " " + part[1]
		}
	}
	return settings.CleanText(text, maxAuditClient)
}

const (
	// auditWindow is how often an action that is repeated gets a line.
	auditWindow = 10 * time.Second
	// maxAudited limits how many different actions on items, and on settings, get lines in a
	// window. The rest is summed up by action.
	maxAudited = 100
)

// AuditLog logs actions. The first of its kind is logged at once, and its repetitions are summed up
// at the end of each window, so that a flood of requests is no flood of lines.
type AuditLog struct {
	logger *slog.Logger

	mu sync.Mutex
	// open counts the actions of this window, and of the window before if they go on. Actions on
	// settings have a map of their own, so that they cannot hide a purge.
	open [auditSettings + 1]map[auditEntry]*auditSum
	rest map[string]*auditSum // what had no room there, by action
}

func newAuditLog(logger *slog.Logger) *AuditLog {
	open := [...]map[auditEntry]*auditSum{auditItems: {}, auditSettings: {}}
	return &AuditLog{logger: logger, open: open, rest: map[string]*auditSum{}}
}

// auditSum counts actions that have no line yet.
type auditSum struct{ items, requests int64 }

// note logs an action, or counts it in its window.
func (l *AuditLog) note(a auditEntry, items int64) {
	l.mu.Lock()
	defer l.mu.Unlock()

	open := l.open[a.on]
	sum := open[a]
	switch {
	case sum != nil:
	case len(open) < maxAudited:
		open[a] = &auditSum{}
		l.log(a, auditSum{items: items})
		return
	default:
		sum = cmp.Or(l.rest[a.action], &auditSum{})
		l.rest[a.action] = sum
	}
	sum.items += items
	sum.requests++
}

// Run ends one window after the other until ctx ends. Call EndWindow after that, for the last one.
func (l *AuditLog) Run(ctx context.Context) {
	ticker := time.NewTicker(auditWindow)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			l.EndWindow()
		case <-ctx.Done():
			return
		}
	}
}

// EndWindow logs the sums of a window.
func (l *AuditLog) EndWindow() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, open := range l.open {
		for a, sum := range open {
			if sum.requests == 0 {
				delete(open, a)
				continue
			}
			l.log(a, *sum)
			*sum = auditSum{}
		}
	}

	for _, action := range slices.Sorted(maps.Keys(l.rest)) {
		l.logger.Warn("too many actions to log each of them; these are left out", "action", action,
			"items", l.rest[action].items, "requests", l.rest[action].requests)
	}
	clear(l.rest)
}

func (l *AuditLog) log(a auditEntry, sum auditSum) {
	args := []any{"action", a.action, "queue", a.queue}
	for _, more := range [][2]any{
		{"items", sum.items}, {"requests", sum.requests}, {"request", a.request},
		{"outcome", a.outcome}, {"client", a.client}, {"inbox", a.inbox}, {"nats", a.nats},
	} {
		if more[1] != "" && more[1] != int64(0) {
			args = append(args, more[:]...)
		}
	}
	l.logger.Info("action", args...)
}
