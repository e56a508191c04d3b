package subjects

import (
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/pqbridge/pqbridge/subjects/strictjson"
)

// ResultOptions is the payload of a result request, a JSON object with an id or a message id:
//
//	{"id":"FQEUAAZgsSk-WP2dUQEwPdUmVNcIYVo"}
//	{"msg_id":"invoice-17","expires":"30s"}
type ResultOptions struct {
	// ID is the id of the job.
	ID string
	// MsgID is the message id of its push, 1 to MaxKey bytes.
	MsgID string
	// Expires is how long the request waits for the job to be done or dead, MinExpires to
	// MaxExpires; 0 means it does not.
	Expires time.Duration
	// Frames is as in [PopOptions].
	Frames bool
}

// resultObject is ResultOptions as JSON.
type resultObject struct {
	ID    *string `json:"id,omitzero"`
	MsgID *string `json:"msg_id,omitzero"`

	Expires time.Duration `json:"expires,omitzero"`
	Frames  bool          `json:"frames,omitzero"`
}

var errNoJob = errors.New(`no id: want {"id":"..."}, with an id that push, pop or items ` +
	`returned, or {"msg_id":"..."}`)

// ParseResultOptions reads the payload of a result request. Errors wrap [ErrOptions].
func ParseResultOptions(payload []byte) (ResultOptions, error) {
	var o resultObject
	if err := readObject(payload, &o); err != nil {
		return ResultOptions{}, err
	}
	return ResultOptions{
		ID: deref(o.ID), MsgID: deref(o.MsgID), Expires: o.Expires, Frames: o.Frames,
	}, nil
}

func (o *resultObject) check() error {
	switch {
	case o.ID == nil && o.MsgID == nil:
		return errNoJob
	case o.ID != nil && o.MsgID != nil:
		return errors.New("id and msg_id: want one of them")
	case o.MsgID != nil && (*o.MsgID == "" || len(*o.MsgID) > MaxKey):
		return fmt.Errorf("msg_id: %d bytes: want 1 to %d", len(*o.MsgID), MaxKey)
	}
	return durationWithin("expires", o.Expires, MinExpires, MaxExpires)
}

// Encode returns the payload that [ParseResultOptions] reads.
func (o ResultOptions) Encode() []byte {
	object := resultObject{ID: &o.ID, Expires: o.Expires, Frames: o.Frames}
	if o.MsgID != "" {
		object.ID, object.MsgID = nil, &o.MsgID
	}
	return strictjson.Marshal(object)
}

// Headers of the reply to a result request, beside [ItemInfo]; and to a get of a job that is done,
// which has the times.
const (
	// HeaderDue is when the delay of the item is over, and HeaderLeasedAt when its lease began.
	HeaderDue      = "Pq-Due"
	HeaderLeasedAt = "Pq-Leased-At"
	// HeaderHolder is the name that the lease was taken with.
	HeaderHolder = "Pq-Holder"
	// HeaderProgress is what the worker has said of a job that is leased, in Base64.
	HeaderProgress = "Pq-Progress"
	// HeaderLastReason is why the job last failed.
	HeaderLastReason = "Pq-Last-Reason"
	// HeaderFinishedAt is when a job was acknowledged, and HeaderKeptUntil until when it is kept.
	HeaderFinishedAt = "Pq-Finished-At"
	HeaderKeptUntil  = "Pq-Kept-Until"
	// HeaderValueDropped with ValueDropped, in the reply to a get, says that the value of a job
	// that is done was not kept. In the reply to an acknowledgement it says which leases are of
	// such jobs: see [ParseNumbers].
	HeaderValueDropped = "Pq-Value-Dropped"
	ValueDropped       = "true"
	// HeaderResultSize is how many bytes the result of a job has. Without it there is none.
	HeaderResultSize = "Pq-Result-Size"
)

// JobInfo is what the reply to a result request says of a job, beside its result.
type JobInfo struct {
	ItemInfo
	// State is StateDead for a dead letter, whatever it waits for.
	State State
	// Due is when the lease or the delay is over, zero for a job in another state.
	Due time.Time
	// LeasedAt is when the lease began, zero if that is not known; of a job that is done, the last.
	LeasedAt time.Time
	// Holder is the name that this lease was taken with, "" without one.
	Holder string
	// Deliveries is how often the job was delivered.
	Deliveries int64
	// Reason is of the last failure of a job under way that gave one, or "".
	Reason string
	// FinishedAt is when a job that is done was acknowledged, and KeptUntil until when it is kept.
	FinishedAt, KeptUntil time.Time
	// HasResult says that a job that is done has a result, of ResultSize bytes and the type
	// ContentType, which may be "".
	HasResult   bool
	ResultSize  int64
	ContentType string
	// Progress is what the worker has said last of a job that is leased, or nil.
	Progress []byte
}

// Headers returns the headers of the reply, for a queue of that kind. They belong to the caller.
func (j *JobInfo) Headers(k Kind) map[string][]string {
	h := map[string][]string{
		HeaderID:         {j.ID},
		HeaderState:      {string(j.State)},
		HeaderDeliveries: {strconv.FormatInt(j.Deliveries, 10)},
	}
	if k == Priority {
		h[HeaderPriority] = []string{strconv.FormatInt(j.Priority, 10)}
	}
	if j.DeadLetter != nil {
		j.DeadLetter.Headers(h)
	}
	due := HeaderDue
	if j.State == StateLeased {
		due = HeaderLeaseUntil
	}

	for _, at := range []struct {
		name string
		time time.Time
	}{
		{HeaderPushedAt, j.PushedAt}, {due, j.Due}, {HeaderLeasedAt, j.LeasedAt},
		{HeaderFinishedAt, j.FinishedAt}, {HeaderKeptUntil, j.KeptUntil},
	} {
		if !at.time.IsZero() {
			h[at.name] = []string{at.time.UTC().Format(TimeLayout)}
		}
	}
	if j.Join > 0 {
		h[HeaderJoin] = []string{strictjson.DurationText(j.Join)}
	}
	if j.HasResult {
		h[HeaderResultSize] = []string{strconv.FormatInt(j.ResultSize, 10)}
	}
	for _, text := range [][2]string{
		{HeaderPlace, j.Place}, {HeaderQueue, j.FoundIn}, {HeaderHolder, j.Holder},
		{HeaderContentType, j.ContentType}, {HeaderLastReason, j.Reason},
		{HeaderProgress, base64.StdEncoding.EncodeToString(j.Progress)},
	} {
		if text[1] != "" {
			h[text[0]] = []string{text[1]}
		}
	}
	return h
}

// ParseJobInfo reads the headers of the reply to a result request. A header that is wrong counts as
// absent; the error joins one for each.
func ParseJobInfo(h map[string][]string) (j JobInfo, err error) {
	for _, name := range slices.Sorted(maps.Keys(h)) {
		err = errors.Join(err, j.set(name, first(h, name)))
	}
	return j, err
}

// set reads one header.
func (j *JobInfo) set(name, value string) (err error) {
	switch name {
	case HeaderState:
		j.State = State(value)
	case HeaderDue, HeaderLeaseUntil:
		j.Due, err = parseTime(name, value)
	case HeaderLeasedAt:
		j.LeasedAt, err = parseTime(name, value)
	case HeaderFinishedAt:
		j.FinishedAt, err = parseTime(name, value)
	case HeaderKeptUntil:
		j.KeptUntil, err = parseTime(name, value)
	case HeaderHolder:
		j.Holder = value
	case HeaderDeliveries:
		j.Deliveries, err = parseCount(name, value)
	case HeaderLastReason:
		j.Reason = value
	case HeaderResultSize:
		j.ResultSize, err = parseCount(name, value)
		j.HasResult = err == nil
	case HeaderContentType:
		j.ContentType = value
	case HeaderProgress:
		if j.Progress, err = base64.StdEncoding.DecodeString(value); err != nil {
			j.Progress, err = nil, fmt.Errorf("header %s: %s: want Base64", name, quote(value))
		}
	default:
		item := ItemHeaders{ItemInfo: j.ItemInfo}
		err = item.Set(name, value)
		j.ItemInfo = item.ItemInfo
	}
	return err
}
