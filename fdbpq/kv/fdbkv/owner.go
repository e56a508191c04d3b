package fdbkv

import "errors"

// ErrOwnerCommits is returned by Commit of a transaction that Wrap returned.
var ErrOwnerCommits = errors.New(
	"fdbkv: a wrapped transaction is committed by the program that began it")
