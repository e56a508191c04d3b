package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/pqbridge/pqbridge/client"
)

// userInfoSubject is where a NATS server says who is logged in.
const userInfoSubject = "$SYS.REQ.USER.INFO"

// natsUser is what a NATS server says about a user.
type natsUser struct {
	User        string `json:"user"`
	Account     string `json:"account"`
	Permissions struct {
		Publish permissions `json:"publish"`
	} `json:"permissions"`
}

// permissions are for one direction. Without any of them everything is allowed.
type permissions struct {
	Allow []string `json:"allow"`
	Deny  []string `json:"deny"`
}

// user returns who is logged in.
func (s *session) user() (*natsUser, error) {
	ctx, cancel := context.WithTimeout(s.usable, firstAnswer)
	defer cancel()
	reply, err := s.nc.RequestWithContext(ctx, userInfoSubject, nil)
	if err != nil {
		return nil, fmt.Errorf("no answer on %s: %w", userInfoSubject, cmp.Or(context.Cause(s.usable), err))
	}
	var answer struct {
		Data *natsUser `json:"data"`
	}
	if err := json.Unmarshal(reply.Data, &answer); err != nil || answer.Data == nil {
		return nil, fmt.Errorf("%w: %.64q", client.ErrBadReply, reply.Data)
	}
	return answer.Data, nil
}

// allows reports whether all subjects are allowed that match a subject with wildcards.
func (p *permissions) allows(subject string) bool {
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
