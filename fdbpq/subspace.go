package fdbpq

import "github.com/pqbridge/pqbridge/fdbpq/tuple"

// Subspace is the keys that begin with one prefix. A subspace.Subspace and a
// directory.DirectorySubspace of FoundationDB's Go binding are Subspaces, and so is
// a [tuple.Subspace]. (Bytes of a directory partition panics: partitions have no
// keys of their own. Create a directory inside.)
type Subspace interface {
	// Bytes returns the prefix.
	Bytes() []byte
}

// copied returns s as a tuple.Subspace with a prefix of its own.
func copied(s Subspace) tuple.Subspace { return tuple.FromBytes(s.Bytes()) }
