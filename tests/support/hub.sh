# hub.sh, to be sourced: an imitation of Hugging Face's hub (hub.py), which has the folders of hub/repos and a certificate of its own.
# The test is skipped where there is no python3 with ssl, or no openssl.
python3 -c 'import ssl' 2>/dev/null || { echo "skip: no python3 with ssl"; exit 77; }
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=localhost \
    -addext "subjectAltName=DNS:localhost,IP:127.0.0.1" -keyout key.pem -out cert.pem 2>/dev/null || { echo "skip: openssl makes no certificate"; exit 77; }
mkdir -p hub/repos
unset HF_TOKEN HF_HUB_CACHE OLLAMA_MODELS

# Starts it, perhaps by other words (nsenter of a machine), and makes it the hub of what is started from here on. It ends with the
# test, or as 7 is closed.
start_hub() { # words...
    mkfifo hold
    "$@" python3 "$SOURCE_DIR/tests/support/hub.py" hub cert.pem key.pem <hold >hub.out 2>&1 &
    exec 7>hold
    for _ in {1..400}; do [ ! -s hub/ports ] || break; sleep 0.05; done
    read -r hub_port _ <hub/ports || { echo "FAILED: the imitation: $(cat hub.out)"; exit 1; }
    export HF_ENDPOINT=https://127.0.0.1:$hub_port SSL_CERT_FILE=$PWD/cert.pem no_proxy='*'
}
