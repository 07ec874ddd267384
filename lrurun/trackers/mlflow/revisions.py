"""The versions of MLflow's tables."""

NEWEST_RELEASE = "3.17"
"""The newest release of MLflow whose tables are known."""
REVISIONS = frozenset(
    """
    0584bdc529eb 0a8213491aaa 0c779009ac13 17e22815139b 181f10493468 1971f2d9a75b 1a0cddfcaa16 1b5f0d9ad7c1
    1bd49d398cd23 27a6a02d2cf1 2b4d017a5e9b 2c33131f4dae 2d6e25af4d3e 3500859a5d39 39d1c3be5f05 3da73c924c2f
    400f98739977 4465047574b1 451aebb31d03 534353b11cbc 5b0e9adcef9c 5d2d30f0abce 6953534de441 6f8d9c3b2a1e
    71994744cf8e 728d730b5ebd 75868b020152 76601a5f987d 770bee3ae1dd 7ac759974ad8 7d34483879f0 7f2a7d5fae7d
    84291f40a231 867495a8f9d4 89d3d66ed43f 89d4b8295536 90e64c465722 97727af70f4d a1b2c3d4e5f6 a5b4c3d2e1f0
    a8b9c0d1e2f3 a8c4a736bde6 acf3f17fdcc7 ae8bbe7743c9 b7c8d9e0f1a2 b7e2c1a4d9f3 b7e4c1a90f23 bd07f7e963c5
    bda7b8c39065 bf29a5ff90ea c1d2e3f4a5b6 c3d6457b6d8a c3d9e7f1a2b4 c48cb773bb87 c8d9e0f1a2b3 c9d4e5f6a7b8
    cbc13b556ace cc1f77228345 cfd24bdc0731 d0e1f2a3b4c5 d3e4f5a6b7c8 da6fb0208061 dc11669786a5 de4033877273
    df50e92ffc5e e1f2a3b4c5d6 f5a4f2784254
    """.split()
)
"""The marks in `alembic_version` of its tables, up to that release."""
