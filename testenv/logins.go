package testenv

import (
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nkeys"
)

// Login is one way for clients to log in to a NATS server. The fields that are not
// empty hold what a client needs.
type Login struct {
	Name string
	// Config is the login's part of the server's configuration file.
	Config string

	User, Password, Token string
	CredsFile, NkeyFile   string
	// CAFile has the authorities to trust; CertFile and KeyFile identify the client.
	CAFile, CertFile, KeyFile string
}

// Logins returns one login of each kind. Servers do not know the logins of another
// call.
func Logins(t testing.TB) []Login {
	t.Helper()
	password, token := rand.Text(), rand.Text()
	return []Login{
		{
			Name: "password", User: "bridge", Password: password,
			Config: fmt.Sprintf("authorization { user: bridge, password: %q }", password),
		},
		{Name: "token", Token: token, Config: fmt.Sprintf("authorization { token: %q }", token)},
		nkeyLogin(t),
		credsLogin(t),
		tlsLogin(t, "tls", false),
		tlsLogin(t, "client certificate", true),
	}
}

// ServerOptions returns the options of a server with a configuration file, except for
// its address.
func ServerOptions(t testing.TB, config string) func(*server.Options) {
	t.Helper()
	parsed, err := server.ProcessConfigFile(writeFile(t, "nats.conf", []byte(config)))
	if err != nil {
		t.Fatalf("testenv: NATS configuration: %v\n%s", err, config)
	}

	return func(o *server.Options) {
		host, port := o.Host, o.Port
		*o = *parsed
		o.Host, o.Port, o.NoSigs, o.NoLog = host, port, true, true
	}
}

func nkeyLogin(t testing.TB) Login {
	user := newKey(nkeys.CreateUser)
	return Login{
		Name: "nkey", NkeyFile: writeFile(t, "user.nk", user.seed),
		Config: fmt.Sprintf("authorization { users = [ { nkey: %s } ] }", user.public),
	}
}

// credsLogin returns the login of a user of an account of an operator.
func credsLogin(t testing.TB) Login {
	operator, user := newKey(nkeys.CreateOperator), newKey(nkeys.CreateUser)
	account := newKey(nkeys.CreateAccount)
	claims := []struct {
		jwt.Claims
		issuer key
	}{
		{jwt.NewOperatorClaims(operator.public), operator},
		{jwt.NewAccountClaims(account.public), operator},
		{jwt.NewUserClaims(user.public), account},
	}

	var signed []string
	for _, c := range claims {
		signed = append(signed, made(c.Encode(c.issuer.pair)))
	}

	creds := made(jwt.FormatUserConfig(signed[2], user.seed))
	return Login{
		Name: "creds", CredsFile: writeFile(t, "user.creds", creds),
		Config: fmt.Sprintf("operator: %s\nresolver: MEMORY\nresolver_preload: { %s: %s }",
			signed[0], account.public, signed[1]),
	}
}

func tlsLogin(t testing.TB, name string, verify bool) Login {
	cert, key := selfSigned(t, "nats-server")
	l := Login{Name: name, CAFile: cert}
	clients := cert // the authority of clients
	if verify {
		l.CertFile, l.KeyFile = selfSigned(t, "bridge")
		clients = l.CertFile
	}

	l.Config = fmt.Sprintf("tls { cert_file: %q, key_file: %q, ca_file: %q, verify: %t }",
		cert, key, clients, verify)
	return l
}

// key is an nkey.
type key struct {
	pair   nkeys.KeyPair
	public string
	seed   []byte
}

func newKey(create func() (nkeys.KeyPair, error)) key {
	pair := made(create())
	return key{pair, made(pair.PublicKey()), made(pair.Seed())}
}

// made returns a value. It panics on an error, which only a lack of random numbers could cause.
func made[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

// writeFile writes a file in a folder of its own and returns its path.
func writeFile(t testing.TB, name string, content []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatalf("testenv: %v", err)
	}
	return path
}
