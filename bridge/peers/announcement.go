package peers

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// announcement is what a bridge tells all others on the same NATS.
type announcement struct {
	Self
	Store   string `json:"store"` // identity, see fdbpq.OpenStore
	Host    string `json:"host"`
	Process int    `json:"process"`
	State   State  `json:"state"`
	Pulse   string `json:"pulse,omitempty"`
}

// State says how far a bridge is that wants to serve.
type State string

// The states in which a bridge announces itself.
const (
	Starting State = "starting"
	Serving  State = "serving"
	Blocked  State = "waiting" // until another one is gone
	gone     State = "gone"
)

func (s State) rank() int {
	return slices.Index([]State{Blocked, Starting, Serving}, s)
}

// realm is what bridges must have in common to serve the same subjects. If a bridge has an
// exclusive store, any other bridge with the same store uses a copy of it.
func (a *announcement) realm() string {
	owner := ""
	if a.Exclusive {
		owner = a.ID // not host and process, which two containers can share
	}
	return strings.Join(append(slices.Clone(a.Subjects), a.Store, a.Group, owner), " ")
}

// outranks reports whether a may serve if only one of the two bridges can. A serving bridge
// outranks a starting one, and a starting bridge outranks a waiting one, because somebody may just
// have restarted it. Among equals the older bridge comes first. A realm has the rank of its best
// bridge.
func (a *announcement) outranks(other *announcement) bool {
	return cmp.Or(
		cmp.Compare(other.State.rank(), a.State.rank()),
		a.Started.Compare(other.Started),
		cmp.Compare(a.ID, other.ID),
	) < 0
}

// overlap reports whether any subject matches both lists of wildcards, which have the form "a.b.>".
func overlap(these, those []string) bool {
	for _, this := range these {
		for _, that := range those {
			this, that := strings.TrimSuffix(this, ">"), strings.TrimSuffix(that, ">")
			if strings.HasPrefix(this, that) || strings.HasPrefix(that, this) {
				return true
			}
		}
	}

	return false
}

// explain says why the bridge self cannot serve beside the rival a, and what to do.
func (a *announcement) explain(self *announcement) string {
	var wrong, remedy string
	switch {
	case a.Store != self.Store:
		wrong = "it has another store, so each would have only some of the items"
		remedy = "stop one of them, give them different subject prefixes, or let them share one " +
			"FoundationDB"
	case a.Group != self.Group:
		wrong = "it is in another queue group, so each request would be run twice"
		remedy = "stop one of them, or give them the same queue group"
	case !slices.Equal(a.Subjects, self.Subjects):
		wrong = "it has other subject prefixes, so requests would reach a bridge that cannot " +
			"parse them"
		remedy = "stop one of them, or give them the same subject prefixes"
	default:
		wrong = "its store is a copy of this one's, so each item is in both"
		remedy = "stop one of them, or give them different subject prefixes"
	}

	return fmt.Sprintf("%s. It is %s. This one is %s. To solve this, %s",
		wrong, a.describe(), self.describe(), remedy)
}

// describe says which bridge it is and where it runs.
func (a *announcement) describe() string {
	location := ""
	if a.Location != "" {
		location = fmt.Sprintf(", store %.300q", a.Location)
	}
	return fmt.Sprintf("host %.100q, process %d%s, queue group %.100q, subjects %.200q, id %s",
		a.Host, a.Process, location, a.Group, strings.Join(a.Subjects, " "), a.ID)
}
