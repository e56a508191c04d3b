//go:build !fdb

package bench

import "errors"

func openCluster(*Options, string) (cluster, error) {
	return nil, errors.New("pqbench was built without FoundationDB: build it with -tags fdb, " +
		"which make does where FoundationDB's client package is installed")
}
