package jetstream

import (
	"cmp"
	"context"
	"reflect"
	"slices"
	"strings"

	"github.com/nats-io/nats-server/v2/server/gsl"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/subjects/settings"
)

const (
	maxNames   = 1024 // of a page of names, as in JetStream
	maxStreams = 64   // of a page of streams, because each is read
	// sampledPriorities is at how many priorities STREAM.INFO looks for the oldest item.
	sampledPriorities = 20
)

// queueState is what the face reads of a queue.
type queueState struct {
	settings  *fdbpq.Settings
	info      *fdbpq.Info
	consumers map[string]*consumer
}

// readQueue reads a queue.
func (f *Face) readQueue(ctx context.Context, s stream) (*queueState, error) {
	results, err := f.do(ctx, s,
		fdbpq.Op{Kind: fdbpq.OpSettings},
		fdbpq.Op{Kind: fdbpq.OpInfo, MaxPriorities: sampledPriorities},
		fdbpq.Op{Kind: fdbpq.OpConsumers})
	if err != nil {
		return nil, err
	}
	all, err := f.parseRecords(s, results[2].Records)
	return &queueState{results[0].Settings, results[1].Info, all}, err
}

// configOf returns the configuration of the stream that a queue is.
func (f *Face) configOf(s stream, set *settings.Settings) jetstream.StreamConfig {
	c := jetstream.StreamConfig{
		Name: s.name, Subjects: []string{f.pushSubject(s)}, Retention: jetstream.WorkQueuePolicy,
		MaxMsgs: cmp.Or(set.MaxItems, -1), MaxBytes: cmp.Or(set.MaxBytes, -1), MaxAge: set.TTL,
		MaxConsumers: -1, MaxMsgsPerSubject: -1, MaxMsgSize: fdbpq.MaxMessageSize,
		Duplicates: max(set.Window(), 0), Discard: jetstream.DiscardNew, DenyDelete: true,
		Storage: jetstream.FileStorage, Replicas: 1,
	}
	if set.Discard == settings.DiscardOld {
		c.Discard = jetstream.DiscardOld
	}
	return c
}

// infoOf returns the info of the stream that a queue is. The sequence numbers only say how many
// items there are.
func (f *Face) infoOf(s stream, q *queueState) *jetstream.StreamInfo {
	n := uint64(q.info.Ready + q.info.Leased + q.info.Delayed)
	state := jetstream.StreamState{
		Msgs: n, FirstSeq: min(n, 1), LastSeq: n, NumSubjects: min(n, 1),
		FirstTime: q.info.Oldest.UTC(), Consumers: len(q.consumers),
	}
	return &jetstream.StreamInfo{
		Config: f.configOf(s, q.settings), Created: unknownTime, State: state,
		Domain: f.domains.names[s.kind], TimeStamp: f.config.Now().UTC(),
	}
}

// streamInfo answers STREAM.INFO.
func (f *Face) streamInfo(ctx context.Context, r *request) (any, error) {
	var asked struct {
		Offset         int    `json:"offset"` // into the subjects; there is only one
		DeletedDetails bool   `json:"deleted_details"`
		SubjectsFilter string `json:"subjects_filter"`
	}
	if err := decodeQuery(r.payload, &asked); err != nil {
		return nil, err
	}

	q, err := f.readQueue(ctx, r.stream)
	if err != nil {
		return nil, err
	}

	// A stream of a queue has one subject, which is shown only if it has messages.
	info := f.infoOf(r.stream, q)
	subject := info.Config.Subjects[0]
	if asked.SubjectsFilter != "" && matches(asked.SubjectsFilter, subject) && info.State.Msgs > 0 {
		info.State.Subjects = map[string]uint64{subject: info.State.Msgs}
	}
	return struct {
		page
		*jetstream.StreamInfo
	}{page{Total: len(info.State.Subjects), Limit: maxNames}, info}, nil
}

// matches reports whether a filter, which may have wildcards, matches a subject without any.
func matches(filter, subject string) bool {
	filters := gsl.NewSimpleSublist()
	return filters.Insert(filter, struct{}{}) == nil && filters.HasInterest(subject)
}

// listed returns a page of up to limit names of streams. Its Total is exact only on the last page.
// Before that it is one more than were seen, so that clients ask for the next page.
func (f *Face) listed(
	ctx context.Context, r *request, limit int,
) (names []string, page page, err error) {
	var asked query
	if err := decodeQuery(r.payload, &asked); err != nil {
		return nil, page, err
	}

	page.Offset, page.Limit = max(asked.Offset, 0), limit
	names = []string{}

	// A client that looks up the stream of a subject finds it even before the first push.
	if name, ok := f.nameOf(r.kind, asked.Subject); ok {
		page.Total, page.Offset = 1, min(page.Offset, 1)
		return append(names, name)[page.Offset:], page, nil
	}

	o := subjects.ListOptions{Limit: subjects.MaxList}
	for {
		list, err := f.config.List(ctx, r.kind, o)
		if err != nil {
			return nil, page, err
		}

		for _, q := range list.Queues {
			subject := f.pushSubject(stream{r.kind, q.Queue})
			if asked.Subject != "" && !matches(asked.Subject, subject) {
				continue
			}
			if page.Total++; page.Total <= page.Offset {
				continue
			}
			if len(names) == limit {
				return names, page, nil
			}
			names = append(names, q.Queue)
		}

		if list.Next == nil {
			page.Offset = min(page.Offset, page.Total)
			return names, page, nil
		}
		o.After = *list.Next
	}
}

// nameOf returns the name of the stream that has a subject without wildcards.
func (f *Face) nameOf(kind subjects.Kind, subject string) (string, bool) {
	r, err := f.config.Grammar.Parse(subject)
	if err != nil || r.Kind != kind || f.pushSubject(stream{kind, r.Queue}) != subject {
		return "", false
	}
	return r.Queue, true
}

// streams answers STREAM.NAMES and STREAM.LIST.
func (f *Face) streams(ctx context.Context, r *request) (any, error) {
	if r.row.name != streamList {
		names, page, err := f.listed(ctx, r, maxNames)
		page.Streams = names
		return page, err
	}

	names, page, err := f.listed(ctx, r, maxStreams)
	infos := []*jetstream.StreamInfo{}
	for _, name := range names {
		s := stream{r.kind, name}
		q, err := f.readQueue(ctx, s)
		if err != nil {
			return nil, err
		}
		infos = append(infos, f.infoOf(s, q))
	}

	page.Streams = infos
	return page, err
}

// streamCreate answers STREAM.CREATE and STREAM.UPDATE. They succeed, and change nothing, if they
// describe the stream as it is.
func (f *Face) streamCreate(ctx context.Context, r *request) (any, error) {
	var asked struct {
		jetstream.StreamConfig
		Pedantic bool `json:"pedantic"`
	}
	if err := decode(r.payload, &asked); err != nil {
		return nil, err
	}
	if asked.Name != r.stream.name {
		const text = "stream name in subject does not match request: want %s"
		return nil, refuse(errNameMismatch, text, r.stream.name)
	}

	q, err := f.readQueue(ctx, r.stream)
	if err != nil {
		return nil, err
	}

	info := f.infoOf(r.stream, q)
	if !slices.Equal(asked.Subjects, info.Config.Subjects) {
		// Clients hide the text of errStreamExists, and take it for another program's stream.
		const text = "a stream is a queue: want subjects %q, to which items are pushed"
		return nil, refuse(errStreamConfig, text, info.Config.Subjects)
	}

	asked.AllowDirect = false // the nats tool asks for it, and it only says how messages are read
	const leaveOut = "leave out %s, and change the settings of the queue"
	if field := differs(asked.StreamConfig, info.Config); field != "" {
		if r.row.name == streamUpdate {
			return nil, refuse(errStreamConfig, "a stream is a queue: "+leaveOut, field)
		}
		const text = "stream name already in use with a different configuration: " + leaveOut
		return nil, refuse(errStreamExists, text, field)
	}

	return info, nil
}

// differs returns the first member of asked that differs from is, "" if there is none. Zero and
// negative numbers count as unset, because clients send them for what nobody has set.
func differs(asked, is any) string {
	a, b := reflect.ValueOf(asked), reflect.ValueOf(is)
	for i := range a.NumField() {
		value := a.Field(i)
		unset := value.IsZero() || value.CanInt() && value.Int() < 0
		if unset || reflect.DeepEqual(value.Interface(), b.Field(i).Interface()) {
			continue
		}
		name, _, _ := strings.Cut(a.Type().Field(i).Tag.Get("json"), ",")
		return name
	}

	return ""
}

// streamPurge answers STREAM.PURGE.
func (f *Face) streamPurge(ctx context.Context, r *request) (any, error) {
	var asked struct {
		Sequence uint64 `json:"seq"`
		Subject  string `json:"filter"`
		Keep     uint64 `json:"keep"`
	}
	if err := decode(r.payload, &asked); err != nil {
		return nil, err
	}
	if asked.Sequence > 0 || asked.Keep > 0 {
		const text = "bad request: leave out seq and keep: %s, and a purge removes all"
		return nil, refuse(errBadRequest, text, noSequences)
	}

	if asked.Subject != "" && !matches(asked.Subject, f.pushSubject(r.stream)) {
		return map[string]any{"success": true, "purged": 0}, nil
	}

	results, err := f.do(ctx, r.stream, fdbpq.Op{Kind: fdbpq.OpPurge})
	if err != nil {
		return nil, err
	}

	return map[string]any{"success": true, "purged": results[0].Len}, nil
}
