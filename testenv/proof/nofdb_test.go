//go:build !fdb

package proof_test

func fdbSystems() []system { return nil }
