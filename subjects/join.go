package subjects

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/pqbridge/pqbridge/subjects/settings"
)

// ErrJoin: the headers of a push that are about joins are not valid.
var ErrJoin = errors.New("bad join")

// ParseJoin reads the value of [HeaderJoin], a duration with a unit from [settings.MinJoin] to
// [settings.MaxDelay]. Errors wrap [ErrJoin].
func ParseJoin(text string) (time.Duration, error) {
	return parseLong(text, settings.MinJoin, ErrJoin)
}

// Joiner names the joiner of a member: by the number of a frame in the same request, or else by its
// queue and its id.
type Joiner struct {
	Queue string // "" if Frame counts
	ID    string
	Frame int
}

// String returns the value of [HeaderJoiner].
func (j Joiner) String() string {
	if j.Queue == "" {
		return strconv.Itoa(j.Frame)
	}
	return j.Queue + " " + j.ID
}

// ParseJoiner reads the value of [HeaderJoiner]. It does not check the id. Errors wrap [ErrJoin] or
// [ErrQueueName].
func ParseJoiner(text string) (j Joiner, err error) {
	queue, id, named := strings.Cut(text, " ")
	if named {
		return Joiner{Queue: queue, ID: id}, ValidateQueueName(queue)
	}
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil || strconv.FormatUint(n, 10) != text {
		return j, fmt.Errorf("%w: %s: want the number of a frame before it, or a queue, a space "+
			"and the id of a job there", ErrJoin, quote(text))
	}
	return Joiner{Frame: int(n)}, nil
}

// Joined is what has become of the members of a joiner.
type Joined struct {
	Done int64 `json:"done"` // were acknowledged
	Dead int64 `json:"dead"` // became dead letters
	Gone int64 `json:"gone"` // left their queues in another way: popped, removed, expired
	Open int64 `json:"open"` // had not ended when the time of the joiner was over
}

const joinedForm = "done=%d dead=%d gone=%d open=%d"

// String returns the value of [HeaderJoined].
func (j Joined) String() string { return fmt.Sprintf(joinedForm, j.Done, j.Dead, j.Gone, j.Open) }

// parseJoined reads the value of [HeaderJoined].
func parseJoined(text string) (*Joined, error) {
	j := &Joined{}
	_, err := fmt.Sscanf(text, joinedForm, &j.Done, &j.Dead, &j.Gone, &j.Open)
	if err != nil {
		return nil, fmt.Errorf("header %s: %s: want done=, dead=, gone= and open=", HeaderJoined,
			quote(text))
	}
	return j, nil
}
