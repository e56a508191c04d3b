package discovery

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

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
	var answer struct {
		Data *User `json:"data"`
	}
	err := request(ctx, nc, UserSubject, nil, func(m *nats.Msg) (next time.Duration) {
		_ = json.Unmarshal(m.Data, &answer) // then it has no Data
		return 0
	})

	switch {
	case err != nil:
		return nil, fmt.Errorf("no answer on %s: %w", UserSubject, err)
	case answer.Data == nil:
		return nil, fmt.Errorf("%w on %s", client.ErrBadReply, UserSubject)
	}
	return answer.Data, nil
}

// Allows reports whether a subject, without wildcards, is allowed.
func (p *Permissions) Allows(subject string) bool {
	matches := func(pattern string) bool { return match(pattern, subject) }
	return (len(p.Allow) == 0 || slices.ContainsFunc(p.Allow, matches)) &&
		!slices.ContainsFunc(p.Deny, matches)
}

// match reports whether a pattern with wildcards matches a subject.
func match(pattern, subject string) bool {
	tokens := strings.Split(subject, ".")
	patterns := strings.Split(pattern, ".")
	for i, p := range patterns {
		switch {
		case i >= len(tokens):
			return false
		case p == ">":
			return true
		case p != "*" && p != tokens[i]:
			return false
		}
	}
	return len(patterns) == len(tokens)
}
