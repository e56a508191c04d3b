package discovery

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/client"
)

// UserSubject is where a NATS server says who is logged in.
const UserSubject = "$SYS.REQ.USER.INFO"

// User is what a NATS server says about a user.
type User struct {
	User        string `json:"user"`
	Account     string `json:"account"`
	Permissions struct {
		Publish Permissions `json:"publish"`
	} `json:"permissions"`
}

// Permissions are for one direction. Without any of them everything is allowed.
type Permissions struct {
	Allow []string `json:"allow"`
	Deny  []string `json:"deny"`
}

// LoggedIn returns who is logged in.
func LoggedIn(ctx context.Context, nc *nats.Conn) (*User, error) {
	within, cancel := context.WithTimeout(ctx, FirstAnswer)
	defer cancel()
	reply, err := nc.RequestWithContext(within, UserSubject, nil)
	if err != nil {
		return nil, fmt.Errorf("no answer on %s: %w", UserSubject, cmp.Or(context.Cause(ctx), err))
	}

	var answer struct {
		Data *User `json:"data"`
	}

	if err := json.Unmarshal(reply.Data, &answer); err != nil || answer.Data == nil {
		return nil, fmt.Errorf("%w: %.64q", client.ErrBadReply, reply.Data)
	}

	return answer.Data, nil
}

// Allows reports whether all subjects are allowed that match a subject with wildcards.
func (p *Permissions) Allows(subject string) bool {
	allowed := len(p.Allow) == 0
	for _, pattern := range p.Allow {
		allowed = allowed || covers(pattern, subject)
	}
	for _, pattern := range p.Deny {
		allowed = allowed && !overlap(pattern, subject)
	}
	return allowed
}

// covers reports whether a pattern matches all subjects that another one matches.
func covers(pattern, other string) bool { return match(pattern, other, false) }

// overlap reports whether there are subjects that both match.
func overlap(pattern, other string) bool { return match(pattern, other, true) }

func match(pattern, other string, either bool) bool {
	these, those := strings.Split(pattern, "."), strings.Split(other, ".")
	for i, this := range these {
		if i >= len(those) {
			return false
		}
		that := those[i]
		switch {
		case this == ">", either && that == ">":
			return true
		case this == that && that != ">", this == "*" && that != ">", either && that == "*":
		default:
			return false
		}
	}

	return len(these) == len(those)
}
