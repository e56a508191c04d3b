//go:build !fdb

package proof_test

// tagFlags are what go test needs to build the tests like these.
const tagFlags = ""

func fdbSystems() []system { return nil }

func upgradedFDB([2]string) []system { return nil }
