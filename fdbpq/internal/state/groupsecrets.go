package state

import (
	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// GroupSecrets is where one transaction finds the secrets of Keyspaces, which the hashes of groups
// depend on. The zero value is ready to use.
//
// The first transaction that stores an item with a group makes the secret of its Keyspace. It
// conflicts with any other that does the same, so all programs have the same secret.
type GroupSecrets struct {
	// Known is what an earlier transaction has found, by key, so that this one need not read. That
	// transaction must have committed: otherwise the store might not have the secret.
	Known map[string][]byte
	// Found is what this transaction has read or made; the value of a missing secret is nil.
	Found map[string][]byte
}

// Hash returns the hash of a group of a queue. It reads without conflict, and writes nothing: as
// long as there is no secret, there are no items with a group. The error is one of the store.
func (s *GroupSecrets) Hash(
	r kv.Reader, l *codec.Layout, group string,
) (codec.GroupHash, error) {
	secret, err := s.find(r, l)
	return codec.HashGroup(secret, group), err
}

// find returns the secret for the groups of a queue, nil if there is none.
func (s *GroupSecrets) find(r kv.Reader, l *codec.Layout) ([]byte, error) {
	if l.List == nil { // outside of a Keyspace
		return nil, nil
	}

	key := l.List.GroupSecret
	if secret := s.Known[key]; secret != nil {
		return secret, nil
	}
	if secret, read := s.Found[key]; read {
		return secret, nil
	}

	secret, err := r.Get([]byte(key)).Get()
	if err == nil {
		s.note(key, secret)
	}
	return secret, err
}

func (s *GroupSecrets) note(key string, secret []byte) {
	if s.Found == nil {
		s.Found = map[string][]byte{}
	}
	s.Found[key] = secret
}
