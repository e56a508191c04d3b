package fdbpq

// Subspace is the keys that begin with one prefix: a subspace.Subspace or
// directory.DirectorySubspace of FoundationDB's Go binding, or a tuple.Subspace of this
// project. (A directory partition cannot hold keys, and its Bytes panics. Create a directory
// inside.)
type Subspace interface {
	// Bytes returns the prefix.
	Bytes() []byte
}
