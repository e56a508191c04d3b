package leaf

import (
	"encoding/json"
	"strings"

	"github.com/nats-io/nats-server/v2/server/gsl"
)

// permissions are what the server's user may publish, or subscribe to.
type permissions struct {
	Allow patterns `json:"allow"`
	Deny  patterns `json:"deny"`
}

// patterns are subjects with or without wildcards, nil if there are none. Those that are for a
// queue group ("subject group") do not concern leaf nodes, and match nothing here.
type patterns struct{ *gsl.SimpleSublist }

func (p *patterns) UnmarshalJSON(text []byte) error {
	var subjects []string
	err := json.Unmarshal(text, &subjects)
	if len(subjects) > 0 {
		p.SimpleSublist = gsl.NewSimpleSublist()
	}
	for _, subject := range subjects {
		_ = p.Insert(subject, struct{}{}) // what is not valid matches nothing
	}
	return err
}

// publish reports whether a subject may be published. The server checks neither replies to other
// accounts nor the prefix of replies to other clusters.
func (p *permissions) publish(subject string) bool {
	if p == nil {
		return true
	}
	if strings.HasPrefix(subject, "_GR_.") {
		if parts := strings.SplitN(subject, ".", 4); len(parts) == 4 {
			subject = parts[3]
		}
	}
	if strings.HasPrefix(subject, "_R_.") {
		return true
	}
	allow, deny := p.Allow.SimpleSublist, p.Deny.SimpleSublist
	return (allow == nil || allow.HasInterest(subject)) && (deny == nil || !deny.HasInterest(subject))
}

// subscribe reports whether any part of a subject, most of which end in >, may be subscribed to. The
// server takes the subscription anyway, and sends what is allowed.
func (p *permissions) subscribe(subject string) bool {
	return p == nil || p.Allow.SimpleSublist == nil || p.Allow.HasInterestStartingIn(strings.TrimSuffix(subject, ".>"))
}
