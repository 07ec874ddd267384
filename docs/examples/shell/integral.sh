# The integral of exp(x) from 0 to 1 from random samples: sh integral.sh SAMPLES STRATA PAIRS SEED
exec awk -v samples="$1" -v strata="$2" -v pairs="$3" -v seed="$4" -v metrics="${LRURUN_METRICS:-/dev/stdout}" '
function error(  i, k, x, sum, squares) {  # the root mean square of the errors of 50 estimates
    for (i = 0; i < 50; i++) {
        sum = 0
        for (k = 0; k < samples; k++) {
            x = (k % strata + rand()) / strata
            sum += pairs == "true" ? (exp(x) + exp(1 - x)) / 2 : exp(x)
        }
        squares += (sum / samples - (exp(1) - 1)) ^ 2
    }
    return sqrt(squares / 50)
}
BEGIN {
    srand(seed + 1)
    printf "{\"step\": 1, \"val/error\": %.8g, \"test/error\": %.8g}\n", error(), error() > metrics
}'
